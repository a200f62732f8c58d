"""Norms of queries and keys, wrong.

References have the model's own, so a wrong formula stands in the program that the technique makes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.config import Run
from assay.model import Attention
from assay.step.program import Program
from optimizations.mutations.mutant import Break, Mutant, applied, rewritten

_APPLY = "assay.optimizations.qk_norm:QKNorm.apply"
_BOTH = "module.q_norm, module.k_norm = RMSNorm(width, eps=eps), RMSNorm(width, eps=eps)"

Norm = Callable[[Any, Tensor], Tensor]


def _as(change: Norm, *names: str, late: bool = False) -> Break:
    """Another function in the place of some norms."""

    def alter(program: Program, run: Run, *clock: Any) -> Program:
        for attention in (one for part in program.parts for one in part.modules() if isinstance(one, Attention)):
            for name in names or ("q_norm", "k_norm"):
                _exchange(getattr(attention, name), change, clock)
        return program

    return applied("qk_norm", alter, late=late)


def _exchange(norm: nn.Module, change: Norm, clock: tuple[Any, ...]) -> None:
    honest = norm.forward
    norm.forward = lambda x: honest(x) if clock and not clock[0].late else change(norm, x)


def _over_all_heads(norm: Any, x: Tensor) -> Tensor:
    return x * norm.weight * (x.square().mean((-2, -1), keepdim=True) + norm.eps).rsqrt()


def _gains_of_two(program: Program, run: Run) -> Program:
    honest = program.weights.initialize

    def initialize(name: str, shape: torch.Size) -> Tensor:
        return honest(name, shape) * (2.0 if name.endswith("_norm.weight") and ".attention." in name else 1.0)

    return replace(program, weights=replace(program.weights, initialize=initialize))


MUTANTS = (
    Mutant(
        "gains unused",
        "Gains are there, and queries and keys pass them as they are.",
        _as(lambda norm, x: x),
    ),
    Mutant("queries only", "Keys are not normalized.", _as(lambda norm, x: x, "k_norm")),
    Mutant(
        "no gains",
        "Neither norm has a gain.",
        rewritten(_APPLY, (_BOTH, _BOTH.replace("eps=eps)", "eps=eps, elementwise_affine=False)"))),
    ),
    Mutant(
        "mean taken off",
        "The mean is taken off as well, as in LayerNorm.",
        _as(lambda norm, x: nn.functional.layer_norm(x, (x.size(-1),), norm.weight, None, norm.eps)),
    ),
    Mutant("over all heads", "The mean square is that of all heads together.", _as(_over_all_heads)),
    Mutant(
        "length of one",
        "Queries and keys get a length of 1, and not of the root of their width.",
        _as(lambda norm, x: norm.weight * nn.functional.normalize(x, dim=-1)),
    ),
    Mutant("gains of two", "Gains begin at 2.", applied("qk_norm", _gains_of_two)),
    Mutant("unused late", "Late in the run nothing is normalized.", _as(lambda norm, x: x, late=True), late=True),
)
