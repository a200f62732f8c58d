"""Forwards of blocks: each by its number, and what runs again told from backward, inside an autograd function too."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.instruments.phase import runs_again
from support.runs import SHAPE, run_with, specs_of
from support.steps import traced


class Seen(torch.autograd.Function):
    """The identity, which notes whether it runs again."""

    asked: list[bool]

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        Seen.asked.append(runs_again())
        context.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (_,) = context.saved_tensors
        Seen.asked.append(runs_again())
        return gradients[0]


def test_an_autograd_function_inside_a_checkpoint_runs_again_and_its_backward_does_not() -> None:
    Seen.asked = []
    x = torch.ones(2, requires_grad=True)
    checkpoint(lambda one: Seen.apply(one.sin()).cos(), x, use_reentrant=False).sum().backward()
    # The first forward is not in the engine, and a tracer does not ask there.
    assert Seen.asked[1:] == [True, False]


def test_each_block_has_its_contractions_of_all_micro_batches() -> None:
    tokens, width, length = 4 * SHAPE.context_length, SHAPE.n_embd, SHAPE.context_length
    flops = 2 * tokens * (12 * width**2 + 2 * length * width)
    for stack, forwards in ((), 1), (("gradient_accumulation",), 4), (("activation_checkpointing",), 1):
        found = traced(run_with(*specs_of(stack))).block_forwards
        assert [one.block for one in found] == [0, 1, 2, 3]
        for one in found:
            assert (one.contractions, one.flops) == (6 * forwards, flops)
            assert (one.last_contractions, one.last_flops) == (forwards, 8 * tokens * width**2)
            assert one.normalizations == 3 * forwards
