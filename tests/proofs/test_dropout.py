"""Masks of dropout: counted, with the share of zeros that p asks for, and drawn again as they were."""

import json

import pytest
import torch
from torch import nn

from assay.config import Run, Spec
from assay.model import Block
from assay.proofs.dropout import common_masks, fault, unequal_again
from assay.records.trace import Masks, Trace
from support.runs import SHAPE, run_with
from support.steps import traced
from support.swapped import proof_of, traced_after

NOISY = SHAPE.model_copy(update={"dropout": 0.25})
CHECKPOINTING = Spec(name="activation_checkpointing")


def changed(part: nn.Module, p: float) -> None:
    for module in part.modules():
        if isinstance(module, nn.Dropout):
            module.p = p


def with_noise(p: float, run: Run) -> Trace:
    torch.manual_seed(0)
    return traced_after(lambda part: changed(part, p), run)


def test_masks_are_counted_and_have_their_zeros() -> None:
    torch.manual_seed(0)
    run = run_with(model=NOISY)
    trace = traced(run)
    masks, rows = trace.masks, 4 * SHAPE.context_length
    scores = 4 * SHAPE.n_head * SHAPE.context_length**2
    assert masks.drawn == 3 * SHAPE.n_layer + 1
    assert masks.elements == (2 * SHAPE.n_layer + 1) * rows * SHAPE.n_embd + SHAPE.n_layer * scores
    assert masks.zeros == pytest.approx(0.25 * masks.elements, rel=0.05)
    assert (masks.again, fault(trace, run)) == (0, "")


def test_another_rate_is_a_fault() -> None:
    run = run_with(model=NOISY)
    assert fault(with_noise(0.3, run), run).startswith("dropout zeroed 0.")


def test_no_masks_are_a_fault() -> None:
    run = run_with(model=NOISY)
    assert fault(with_noise(0.0, run), run) == "dropout drew 0 masks in forward instead of 13"
    assert fault(with_noise(0.0, run_with()), run_with()) == ""


def test_masks_where_none_are_due_are_a_fault() -> None:
    run = run_with()
    assert fault(with_noise(0.1, run), run).endswith("elements instead of 0")


def test_a_checkpoint_draws_the_same_masks_again() -> None:
    run = run_with(CHECKPOINTING, model=NOISY)
    trace = traced(run)
    assert (trace.masks.again, trace.masks.unequal) == (3 * SHAPE.n_layer, 0)
    assert proof_of(run, trace).verdict


def test_a_checkpoint_that_draws_other_masks_is_no_proof() -> None:
    from assay.step.recomputed import repeat_in_backward

    def forget_the_noise(part: nn.Module) -> None:
        blocks = [one for one in part.modules() if isinstance(one, Block)]
        repeat_in_backward(blocks, {"use_reentrant": False, "preserve_rng_state": False})

    plain, run = run_with(model=NOISY), run_with(CHECKPOINTING, model=NOISY)
    trace = traced_after(forget_the_noise, plain)
    assert unequal_again(trace) == ", but 12 of 12 recomputed dropout masks differ from the forward's"
    evidence = proof_of(run, trace)
    assert not evidence.verdict
    assert evidence.observed.endswith("differ from the forward's")


@pytest.mark.parametrize(
    ("stream", "other", "drawn", "said"),
    [
        (0, 1, (7, 5, 4), "1 of 3 dropout masks of rank 1 equal those of rank 0"),
        (0, 1, (5, 6, 7), ""),
        (0, 1, (), ""),
        (0, 0, (4, 5, 6), ""),
    ],
)
def test_ranks_of_other_streams_have_no_mask_in_common(
    stream: int, other: int, drawn: tuple[int, ...], said: str
) -> None:
    trace = traced(run_with()).model_copy(update={"masks": Masks(digests=(4, 5, 6))})
    assert common_masks(trace, stream, lambda own: [own, json.dumps([other, drawn])]) == said
