"""The predicted peak against the memory pass on the demonstration's six cells; every error is printed (`pytest -s`)."""

from collections.abc import Sequence

import pytest
import torch

from assay.api import configure
from assay.estimate import estimate
from assay.hardware import Machine
from assay.measure.memory import live_tensor_bytes, memory_pass
from assay.training.loop import train_step
from estimate.built import build_step

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
CPU = torch.device("cpu")
CELLS = (
    "",
    "sdpa_attention",
    "bf16_mixed",
    "activation_checkpointing",
    "gradient_accumulation:micro_batches=4",
    "sdpa_attention+bf16_mixed+activation_checkpointing",
)


@pytest.mark.parametrize("stack", CELLS, ids=lambda stack: stack or "baseline")
def test_the_peak_and_its_instant_are_the_measured_ones(stack: str) -> None:
    run = configure("demo", ["model.vocab_size=256", "device=cpu"], _stack(stack))
    predicted = estimate(run, MACHINE).timeline.peak
    step = build_step(run)
    before = live_tensor_bytes(CPU) - _own_bytes(step.named_parameters())
    for index in range(2):
        train_step(step, index)
    # Whatever other tests left alive is not this step's.
    measured = memory_pass(CPU, lambda: _train(step), live_tensor_bytes(CPU) - before)
    error = predicted.nbytes / measured.tensors_peak_bytes - 1
    print(f"{stack or 'baseline'}: predicted {predicted.nbytes}, measured {measured.tensors_peak_bytes}, {error:+.4%}")
    assert abs(error) <= (0.05 if "bf16" in stack else 0.005)
    assert measured.tensors_peak_instant == predicted.label


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]


def _stack(text: str) -> Sequence[str]:
    return [text] if text else []


def _own_bytes(named: Sequence[tuple[str, torch.nn.Parameter]]) -> int:
    return sum(parameter.nbytes for _, parameter in named)
