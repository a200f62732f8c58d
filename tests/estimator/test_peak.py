"""The predicted peak against the memory pass on the demonstration's six cells; every error is printed (`pytest -s`)."""

import pytest

from assay.api import configure
from assay.estimator import estimate
from assay.hardware import Machine
from support.peaks import assert_peak
from support.steps import measured_peak

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
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
    assert_peak(stack)


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
