"""Sequence parallelism, wrong."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from assay.config import Run
from assay.parallel.dtensor import placed_gradient
from assay.step.program import Program
from optimizations.mutations.mutant import Mutant, applied, replaced, rewritten
from optimizations.mutations.spread import CLIPPED, NORM_OF_PIECES

RUN = {"stack": "sequence_parallel+tensor_parallel"}

_NAME, _STYLES = "sequence_parallel", "assay.optimizations.tensor_parallel.step:block_styles"


def _kept_apart(parameter: Tensor) -> Tensor | None:
    """A gradient that is a summand on each rank is taken for the whole."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and parameter.ndim == 1 and any(one.is_partial() for one in gradient.placements):
        own, placed = gradient.to_local(), parameter.placements  # type: ignore[attr-defined]
        parameter.grad = DTensor.from_local(own, gradient.device_mesh, placed, run_check=False)
        return parameter.grad
    return placed_gradient(parameter)


def _half(program: Program, run: Run) -> Program:
    honest = program.gradients
    return replace(program, gradients=lambda step, rows, tokens: honest(step, rows, 2 * tokens))


def _no_gradient_of_the_second(program: Program, run: Run) -> Program:
    for part in program.parts:
        for name, module in part.named_modules():
            if name == "embedding.dropout":
                module.register_forward_pre_hook(_second_detached)
    return program


def _second_detached(module: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (x,) = given
    return (x.detach() + 0 * x,) if torch.distributed.get_rank() == 1 else given


MUTANTS = (
    Mutant(
        "norms apart",
        "Each rank takes its part of a norm's gradient for the whole.",
        replaced("assay.optimizations.tensor_parallel.step:placed_gradient", _kept_apart),
    ),
    Mutant(
        "not divided",
        "The residual stream is whole on every rank.",
        rewritten(
            "assay.optimizations.sequence_parallel:SequenceParallel.apply",
            ("sequence_parts=self.degree", "sequence_parts=1"),
        ),
    ),
    Mutant(
        "MLP not gathered",
        "Each MLP takes its rank's positions for the whole sequence.",
        rewritten(_STYLES, ('"mlp": gathered,', ""), ('"mlp.down": summands,', ""), ('"mlp.dropout": scattered,', "")),
    ),
    Mutant("norm of pieces", "Each rank clips by the norm of its own pieces.", NORM_OF_PIECES, CLIPPED),
    Mutant("halved", "Gradients are divided by the number of ranks.", applied(_NAME, _half)),
    Mutant(
        "first norms apart",
        "The gradient of the norm before attention is that of one rank's positions.",
        rewritten(_STYLES, ('"attention_norm": norm,', "")),
    ),
    Mutant(
        "second half detached",
        "The second half's positions give no gradient to the embedding.",
        applied("tensor_parallel", _no_gradient_of_the_second),
    ),
)
