"""Checkpointing: bit-equal losses, one input a block, and dropout drawn the same twice."""

import pytest
import torch

from assay.api import configure
from assay.config import Spec
from assay.cost import baseline
from assay.estimate import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
from estimate.built import measured_peak
from optimizations.laboratory import SHAPE, losses, run_with, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def checkpointing(every: int) -> Spec:
    return Spec(name="activation_checkpointing", fields={"every": every})


@pytest.mark.parametrize("every", [1, 2, 3, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_losses_are_bit_equal(every: int, dropout: float) -> None:
    model = SHAPE.model_copy(update={"dropout": dropout})
    assert losses(run_with(checkpointing(every), model=model)) == losses(run_with(model=model))


def test_a_checkpointed_block_keeps_its_input_only() -> None:
    kept = {every: estimate(run_with(checkpointing(every)), CPU).timeline.saved_bytes for every in (1, 2, 4)}
    whole = estimate(run_with(), CPU).timeline.saved_bytes
    one_input = 4 * 4 * SHAPE.context_length * SHAPE.n_embd
    mask = SHAPE.context_length**2
    per_block = (whole - kept[2]) // 2
    assert kept[1] == whole - 4 * per_block - mask
    assert per_block > 5 * one_input


STACKS = (
    "activation_checkpointing",
    "activation_checkpointing:every=2+gradient_accumulation:micro_batches=2",
    "selective_checkpointing",
    "selective_checkpointing:policy=matmuls",
)


@pytest.mark.parametrize("stack", STACKS)
def test_the_generators_states_are_in_the_peak_as_measured(stack: str) -> None:
    """In a model this small they are a third of it."""
    shape = ("n_layer=8", "n_head=2", "n_embd=8", "context_length=8", "vocab_size=17", "dropout=0.1")
    overrides = [*(f"model.{one}" for one in shape), "training.batch_size=2", "device=cpu"]
    run = configure("demo", overrides, [stack])
    _, measured, _ = measured_peak(run)
    assert estimate(run, CPU).timeline.peak.nbytes == pytest.approx(measured, rel=0.005)


def test_a_gpus_generator_is_the_hosts() -> None:
    run = run_with(checkpointing(1), model=SHAPE.model_copy(update={"dropout": 0.1}))
    ledger = {device: resolve(checkpointing(1)).predict(baseline(run, device), run, CPU) for device in ("cpu", "cuda")}
    assert {device: one.noise_bytes for device, one in ledger.items()} == {
        "cpu": torch.get_rng_state().nbytes,
        "cuda": 0,
    }
    quiet = run_with(checkpointing(1))
    assert resolve(checkpointing(1)).predict(baseline(quiet, "cpu"), quiet, CPU).noise_bytes == 0


def test_without_dropout_the_down_projection_never_runs_twice() -> None:
    # Per block: qkv, scores, mixture, projection, up run again; down does not.
    evidence = resolve(checkpointing(1)).verify(traced(run_with(checkpointing(1))), run_with(checkpointing(1)))
    assert evidence.observed == "20 matmuls of 4 blocks ran again in backward"


def test_every_larger_than_the_model_is_refused() -> None:
    with pytest.raises(Conflict, match="more than the model's 4 blocks"):
        resolve(checkpointing(5)).check(run_with(), CPU)
