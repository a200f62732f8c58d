"""Checkpointing: bit-equal losses, one input a block, and dropout drawn the same twice."""

import pytest

from assay.config import Spec
from assay.estimate import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
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


def test_without_dropout_the_down_projection_never_runs_twice() -> None:
    # Per block: qkv, scores, mixture, projection, up run again; down does not.
    evidence = resolve(checkpointing(1)).verify(traced(run_with(checkpointing(1))), run_with(checkpointing(1)))
    assert evidence.observed == "20 matmuls of 4 blocks ran again in backward"


def test_every_larger_than_the_model_is_refused() -> None:
    with pytest.raises(Conflict, match="more than the model's 4 blocks"):
        resolve(checkpointing(5)).check(run_with(), CPU)
