"""The predicted peak against the memory pass on the demonstration's six cells; every error is printed (`pytest -s`)."""

from collections.abc import Sequence

import pytest
import torch

from assay.api import configure
from assay.estimator import estimate
from assay.hardware import Machine
from assay.measure.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.training.loop import train_step
from estimator.built import build_step, forget_tables, measured_peak

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
CPU = torch.device("cpu")
WRAPPED_NUMBERS = 128
"""Bytes of numbers that torch wraps in tensors on the way."""
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
    forget_tables()
    step = build_step(run)
    before = live_tensor_bytes(CPU) - _own_bytes(step.named_parameters())
    for index in range(2):
        train_step(step, index)
    # Whatever other tests left alive is not this step's.
    measured = memory_pass(CPU, lambda: _train(step), live_tensor_bytes(CPU) - before)
    error = predicted.nbytes / measured.tensors_peak_bytes - 1
    print(f"{stack or 'baseline'}: predicted {predicted.nbytes}, measured {measured.tensors_peak_bytes}, {error:+.4%}")
    assert abs(predicted.nbytes - measured.tensors_peak_bytes) <= WRAPPED_NUMBERS
    assert measured.tensors_peak_instant == predicted.label


@pytest.mark.parametrize("stack", ["", "chunked_cross_entropy", "bf16_mixed", "bf16_full", "vocab_padding"])
def test_the_sum_of_a_wide_tied_weights_gradients_is_the_measured_one(stack: str) -> None:
    """Few tokens and a wide vocabulary; in place only where the head's gradient comes under the weight's own shape."""
    shape = ("vocab_size=4001", "n_layer=1", "context_length=16")
    overrides = [*(f"model.{one}" for one in shape), "training.batch_size=2", "device=cpu"]
    run = configure("demo", overrides, [one for one in (stack, "fused_adamw") if one])
    predicted = estimate(run, MACHINE).timeline.peak
    _, measured, instant = measured_peak(run)
    assert predicted.nbytes == pytest.approx(measured, rel=1e-3)
    in_place = stack in ("chunked_cross_entropy", "bf16_mixed")
    assert instant == predicted.label == f"backward: {'EmbeddingBackward' if in_place else 'gradient sum'}"


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]


def _stack(text: str) -> Sequence[str]:
    return [text] if text else []


def _own_bytes(named: Sequence[tuple[str, torch.nn.Parameter]]) -> int:
    return sum(parameter.nbytes for _, parameter in named)
