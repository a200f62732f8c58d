"""The predicted peak against the memory pass on the demonstration's six cells; every error is printed (`pytest -s`)."""

import pytest

from assay.api import configure
from assay.estimator import estimate
from assay.hardware import Machine
from support.peaks import assert_exact, assert_peak
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


NARROW = {"n_head": 1, "context_length": 17, "vocab_size": 3, "norm": "rms", "activation": "swiglu"}
UNTIED = {"tie_embeddings": False, "norm_position": "post"}
NOISY = {**UNTIED, "n_layer": 2, "dropout": 0.1, "qk_norm": True}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("fields", "batch_size", "stack"),
    [
        # Recomputation ends in a norm in float32 between casts; squares and their mean are alive before its result.
        (NOISY | {"n_embd": 7, "n_hidden": 7, "bias": True}, 2, "activation_checkpointing:every=2+bf16_full"),
        (NOISY | {"n_embd": 5, "activation": "gelu"}, 4, "activation_checkpointing:every=2+bf16_full"),
        # The block holds the input of its last branch until the norm returns.
        (UNTIED | {"n_layer": 4, "n_embd": 9, "bias": True}, 1, "selective_checkpointing:policy=matmuls+bf16_mixed"),
        # A norm adds to the residual's gradient before it differentiates the squares.
        ({"n_layer": 3, "n_embd": 7, "n_hidden": 1}, 4, "activation_checkpointing"),
        # The buffers of fused attention depend on threads and positions.
        (
            {"n_layer": 1, "n_head": 3, "n_embd": 24, "context_length": 256, "n_hidden": 1, "qk_norm": True},
            12,
            "sdpa_attention",
        ),
    ],
)
def test_the_peak_of_a_narrow_model_is_the_measured_one(fields: dict[str, object], batch_size: int, stack: str) -> None:
    assert_exact({**NARROW, **fields}, batch_size, stack)
