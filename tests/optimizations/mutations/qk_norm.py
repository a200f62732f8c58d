"""Norms of queries and keys, wrong.

References have the model's own, so a wrong formula stands in the program that the technique makes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.config import Run
from assay.model import Attention
from assay.step.program import Program
from optimizations.mutations.mutant import LAST, LATE, Break, Mutant, applied, rewritten

_APPLY = "assay.optimizations.qk_norm:QKNorm.apply"
_BOTH = "module.q_norm, module.k_norm = RMSNorm(width, eps=eps), RMSNorm(width, eps=eps)"

Norm = Callable[[Any, Tensor], Tensor]


def _as(change: Norm, *names: str, late: bool = False, since: int = LATE) -> Break:
    """Another function in the place of some norms."""

    def alter(program: Program, run: Run, *clock: Any) -> Program:
        for attention in (one for part in program.parts for one in part.modules() if isinstance(one, Attention)):
            for name in names or ("q_norm", "k_norm"):
                _exchange(getattr(attention, name), change, clock)
        return program

    return applied("qk_norm", alter, late=late, since=since)


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


def _over_positions(norm: Any, x: Tensor) -> Tensor:
    return x * norm.weight * (x.square().mean((1, -1), keepdim=True) + norm.eps).rsqrt()


def _but_the_last(norm: Any, x: Tensor) -> Tensor:
    normal = nn.functional.rms_norm(x, (x.size(-1),), norm.weight, norm.eps)
    return torch.cat((normal[:, :, :-1], x[:, :, -1:]), dim=2)


def _after_rotation(program: Program, run: Run) -> Program:
    for one in (one for part in program.parts for one in part.modules() if isinstance(one, Attention)):
        one.core.forward = partial(_normalizing, one.core.forward, one.q_norm.forward, one.k_norm.forward)
        one.q_norm.forward = one.k_norm.forward = lambda x: x
    return program


def _normalizing(core: Any, q_norm: Any, k_norm: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    attended: Tensor = core(q_norm(q), k_norm(k), v)
    return attended


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
    Mutant("over positions", "The mean square is that of all positions of a row.", _as(_over_positions)),
    Mutant(
        "epsilon after the root",
        "Epsilon is added to the root of the mean square.",
        _as(lambda norm, x: x * norm.weight / (x.square().mean(-1, keepdim=True).sqrt() + norm.eps)),
    ),
    Mutant(
        "root detached",
        "Gradients take the root of the mean square for a constant.",
        _as(lambda norm, x: x * norm.weight * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt().detach()),
    ),
    Mutant("last head left out", "The last head is not normalized.", _as(_but_the_last)),
    Mutant(
        "after the rotation",
        "Positions rotate queries and keys before they are normalized.",
        applied("qk_norm", _after_rotation),
        run={"model": {"position": "rotary"}},
    ),
    Mutant(
        "slightly larger in the last step",
        "From step 7 on queries are a fiftieth too large.",
        _as(
            lambda norm, x: 1.02 * nn.functional.rms_norm(x, (x.size(-1),), norm.weight, norm.eps),
            "q_norm",
            late=True,
            since=LAST,
        ),
        late=True,
    ),
)
