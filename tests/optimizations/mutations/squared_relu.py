"""Squared ReLU, wrong.

References have the model's own, so a wrong formula stands in the program that the technique makes.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.config import Run
from assay.model.activation import SquaredReluModule
from assay.step.program import Program
from optimizations.mutations.mutant import Break, Mutant, applied, rewritten

_APPLY = "assay.optimizations.squared_relu:SquaredReLU.apply"


def _as(change: Callable[[Tensor], Tensor], *, late: bool = False) -> Break:
    """Another function in the place of the square."""

    def alter(program: Program, run: Run, *clock: Any) -> Program:
        for square in (one for part in program.parts for one in part.modules() if isinstance(one, SquaredReluModule)):
            honest = square.forward

            def forward(x: Tensor, honest: Callable[[Tensor], Tensor] = honest) -> Tensor:
                return honest(x) if clock and not clock[0].late else change(x)

            square.forward = forward  # type: ignore[method-assign]
        return program

    return applied("squared_relu", alter, late=late)


MUTANTS = (
    Mutant(
        "GELU stays", "Nothing is exchanged.", rewritten(_APPLY, ("module.activation = SquaredReluModule()", "pass"))
    ),
    Mutant("plain ReLU", "The ReLU is not squared.", _as(torch.relu)),
    Mutant("square first", "The input is squared, and its sign lost.", _as(lambda x: F.relu(x * x))),
    Mutant("halved", "The square is halved, as if it were a loss.", _as(lambda x: 0.5 * F.relu(x) ** 2)),
    Mutant(
        "one factor detached",
        "Only one factor of the square has a gradient.",
        _as(lambda x: F.relu(x) * F.relu(x).detach()),
    ),
    Mutant(
        "first block only",
        "Only the first block has it.",
        rewritten(
            _APPLY,
            (
                "module.activation = SquaredReluModule()",
                "module.activation = SquaredReluModule()\n                return program",
            ),
        ),
    ),
    Mutant("leaky", "Negative inputs leak through.", _as(lambda x: F.relu(x) ** 2 + 0.01 * x.clamp(max=0.0))),
    Mutant("plain late", "Late in the run the ReLU is not squared.", _as(torch.relu, late=True), late=True),
)
