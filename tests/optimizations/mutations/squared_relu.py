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
from optimizations.mutations.mutant import LAST, LATE, Break, Mutant, applied, rewritten

_APPLY = "assay.optimizations.squared_relu:SquaredReLU.apply"


def _as(change: Callable[[Tensor], Tensor], *, late: bool = False, since: int = LATE) -> Break:
    """Another function in the place of the square."""

    def alter(program: Program, run: Run, *clock: Any) -> Program:
        for square in (one for part in program.parts for one in part.modules() if isinstance(one, SquaredReluModule)):
            honest = square.forward

            def forward(x: Tensor, honest: Callable[[Tensor], Tensor] = honest) -> Tensor:
                return honest(x) if clock and not clock[0].late else change(x)

            square.forward = forward  # type: ignore[method-assign]
        return program

    return applied("squared_relu", alter, late=late, since=since)


def _gelu_in_evaluations(program: Program, run: Run) -> Program:
    for square in (one for part in program.parts for one in part.modules() if isinstance(one, SquaredReluModule)):
        square.forward = lambda x, one=square: F.relu(x) ** 2 if one.training else F.gelu(x)  # type: ignore[misc]
    return program


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
    Mutant("sign kept", "Negative inputs give the negative square.", _as(lambda x: x * x.abs())),
    Mutant(
        "gradient of the square",
        "Negative inputs give zero, and have the gradient of their square.",
        _as(lambda x: x * x + (F.relu(x) ** 2 - x * x).detach()),
    ),
    Mutant("threshold", "Inputs below a thousandth give zero, too.", _as(lambda x: F.threshold(x, 1e-3, 0.0) ** 2)),
    Mutant("GELU in evaluations", "Evaluations have GELU.", applied("squared_relu", _gelu_in_evaluations), late=True),
    Mutant(
        "one expert has GELU",
        "The rows of the first expert have GELU.",
        _as(lambda x: torch.cat((F.gelu(x[:16]), F.relu(x[16:]) ** 2))),
        run={"model": {"n_expert": 2, "n_expert_active": 1}},
    ),
    Mutant(
        "slightly larger in the last step",
        "From step 7 on squares are a fiftieth too large.",
        _as(lambda x: 1.02 * F.relu(x) ** 2, late=True, since=LAST),
        late=True,
    ),
)
