"""A run of any optimizer goes on from its checkpoint bit for bit, its state as wide as it was."""

from pathlib import Path

import pytest
import torch

from assay.config import Spec
from assay.hardware import Machine
from assay.instruments.memory.storages import storages
from assay.optimizations import Unavailable, catalogue, resolve
from assay.training.checkpoints import checkpoint
from assay.training.loop import train_step
from assay.training.step_record import Position
from support.runs import UNTIED, run_with
from support.steps import build_step

OPTIMIZERS = [name for name, kind in catalogue().items() if "optimizer" in kind.claims]


@pytest.mark.usefixtures("updates_as_written")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    run = run_with(Spec(name=name), model=UNTIED)
    try:
        resolve(Spec(name=name)).check(run, Machine(processor="any", cores=2, memory_bytes=2**34))
    except Unavailable as reason:
        pytest.skip(str(reason))
    step, again = build_step(run), build_step(run)
    for index in range(2):
        train_step(step, index)
    checkpoint.save(tmp_path, step, Position(step=2), "any")
    position, _ = checkpoint.resume(tmp_path, again)
    assert position.step == 2
    assert _widths(again.optimizer.state) == _widths(step.optimizer.state) != set()
    for index in (2, 3):
        assert train_step(again, index).loss == train_step(step, index).loss
    for (_, one), (_, other) in zip(step.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, other)


def _widths(state: object) -> set[tuple[str, torch.dtype, int]]:
    """Of every kind of state: its dtype, and the bytes of its largest tensor."""
    kinds: dict[tuple[str, torch.dtype], int] = {}
    for entries in state.values():  # type: ignore[attr-defined]
        for key, value in entries.items():
            held = sum(storage.nbytes() for storage in storages(value))
            kinds[key, value.dtype] = max(held, kinds.get((key, value.dtype), 0))
    return {(key, dtype, held) for (key, dtype), held in kinds.items()}
