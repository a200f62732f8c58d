"""16 bits beside ranks that divide optimizer state or positions: as on one device, proven, and held as predicted.

Pieces round where the whole does, but sums over ranks come in another order, so agreement is that of the precision.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.config.loading import validate
from assay.estimator import estimate
from assay.hardware import Machine
from support.ranks import compute, settled_peaks
from support.steps import losses

MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)
MODEL = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 16, "vocab_size": 65}
STEPS = 4
WITHIN = {"fp16_mixed": 1e-5, "bf16_full": 5e-4, "fp16_full": 5e-5}
PEAKS = ("bf16_full",)
"""Where they are measured, which takes many steps."""
DIVIDED = (("zero_optimizer",), ("sequence_parallel", "tensor_parallel"))
STACKS = [(*divided, precision) for divided in DIVIDED for precision in WITHIN]


def run_of(stack: tuple[str, ...], ranks: int) -> dict[str, Any]:
    training = {"batch_size": 8, "steps": 20, "warmup_steps": 2}
    return {"model": MODEL, "training": training, "device": "cpu", "ranks": ranks, "optimizations": list(stack)}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, ...], Any]:
    return dict(zip(STACKS, compute(list(map(case, STACKS)), tmp_path_factory.mktemp("ranks")), strict=True))


def case(stack: tuple[str, ...]) -> dict[str, Any]:
    return {"run": run_of(stack, 2), "steps": STEPS, "dtype": "float32", "peaks": stack[-1] in PEAKS}


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_losses_are_those_of_one_device_in_the_same_precision(
    found: Mapping[tuple[str, ...], Any], stack: tuple[str, ...]
) -> None:
    alone, whole = (losses(validate(run_of(one, 1)), STEPS) for one in (stack[-1:], ()))
    within = WITHIN[stack[-1]]
    assert found[stack]["losses"] == pytest.approx(alone, rel=within)
    assert found[stack]["losses"] != pytest.approx(whole, rel=1e-7)


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_every_rank_proves_it_and_holds_what_was_predicted(
    found: Mapping[tuple[str, ...], Any], stack: tuple[str, ...], tmp_path: Path
) -> None:
    ranks = found[stack]["ranks"]
    predicted = [estimate(validate(run_of(stack, 2)), MACHINE, rank) for rank in range(2)]
    for seen, said in zip(ranks, predicted, strict=True):
        assert all(evidence["verdict"] for evidence in seen["evidence"]), seen["evidence"]
        assert seen["trace"]["memory"]["parameter_bytes"] == said.cost.parameter_bytes
        assert seen["trace"]["memory"]["optimizer_state_bytes"] == said.cost.optimizer_state_bytes
    if stack[-1] in PEAKS:
        near = pytest.approx([said.timeline.peak.nbytes for said in predicted], rel=0.02)
        assert settled_peaks(ranks, case(stack), near, tmp_path) == near
