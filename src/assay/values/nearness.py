"""Bounds on the error of a loss, a gradient and an updated weight, and their reasons.

Errors are Euclidean norms over one tensor. A float64 baseline is the truth.

Reassociated values: |x − x₆₄| ≤ K·max(|x₃₂ − x₆₄|, u·|x₆₄|), with x₃₂ the float32 baseline and u = 2⁻²⁴, its roundoff.
The float32 baseline's own error shows how hard the tensor is to compute. A key bias, for example, has a zero gradient
in truth and rounding errors in practice, so its bound consists of rounding, too. K is 8 for losses and gradients: 200
honest configurations reach 1.9 (docs/measured/values.md), and other machines sum in other orders. Of several baselines
x₃₂ the one with the largest error counts (`Check._held`).

Lossy values: a technique states how it rounds, and x₁₆ is the baseline with this rounding (`assay.values.rounding`).
Gradients are judged by it, tensor by tensor and all together (`assay.values.pooled`). The bound of a loss is what the
technique states, or 8·max(|x₁₆ − x₆₄|, s). The spread s is √Σ(g·δ)² over the gradients g and rounding errors δ of
weights and results. It is there because errors may cancel in one loss.

For a technique that states no rounding, |x − x₆₄| ≤ ρ·|x₆₄| with the bound ρ that it states. A tensor of n elements has
at least the bound ρ·0.01·r·√n, with r the root mean square of all gradients' elements. Rounding of large values reaches
small tensors, too. Rounding errors have either sign, so they hardly change the slope s = ⟨x, x₆₄⟩/⟨x₆₄, x₆₄⟩. The bound
of |s − 1|, σ + 4ρ/√n with the technique's σ, is narrower. Rows have their own bound: a lost row has the error 1. These
bounds also hold for a model of a user's own. There 4·|x₁₆ − x₆₄| is subtracted from the errors of a gradient, its slope
and its rows. On batches of a user's own a tenth takes the place of a hundredth, because few targets average less.

Vectors: some kernels add a norm's gradient up over all tokens in 16 bits. Large sums then lose small terms, so such a
technique states a further ρ and σ for the gradients of vectors.

Updates: |w′ − w″| ≤ 2·u·|w″| + (ρ or K·u)·|w″ − w|, for a weight w, the program's w′ and the replay's w″. The first
term is the rounding of the weight, with its dtype's u. The second is that of the step, with float32's u and K = 128.
Where the replay rounds the weight itself, few elements can be rounded to another neighbour, and the first term is a
tenth. Where decay joins the gradient, both may cancel, and Adam turns what is left of rounding into a whole step. So an
update beyond its bound is replayed once more, with a gradient of which each element is off by a roundoff. Eight times
the distance of both replays is added to the bound. Lossy updates are judged by their parts as well (`UpdateParts`).

Values that are nearer to their references than a program that rounds can be were not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from assay.records.evidence import WIDE_GROUPS

if TYPE_CHECKING:
    from assay.reference.expected import Closeness, Expected
    from assay.values.computed import Computed

GRADIENT_RATIO = 8.0
"""K of losses and gradients."""
ROUNDED_RATIO = 4.0
"""Multiple of the distance to a gradient at rounded weights that rounding explains: it rounds activations as well."""
UPDATE_RATIO = 128.0
"""K of updates."""
NORM_ERROR = 2e-3
"""Relative error of a norm beside that of its gradients: torch adds up squares in float32."""
EVALUATION_ROUNDOFFS = 64.0
"""Roundoffs of float32 by which the mean losses of two orders of summation may differ."""
ROW_RATIO = 8.0
"""Largest relative error of one row of a lossy gradient, relative to that of a whole tensor."""
ROUNDED_STATE_ERROR = 0.05
"""Largest relative error of a moment that is kept in 8 or 16 bits, or computed from such numbers."""
STATE_ERROR = 1e-3
"""Largest relative error of a moment in float32: its updates are sums, and the replay gets the same gradients."""
_POOLED = ("residual", "scale")
_SHOWN = 3
"""Failures that are reported one by one."""


@dataclass(frozen=True)
class Judged:
    """One value with its error, relative to its bound."""

    what: Literal[
        "loss", "evaluation", "norm", "gradient", "residual", "scale", "update", "state", "step", "decay", "buffer"
    ]
    """A residual and a scale are those of a group of gradients, over all layers. A step and a decay are parts of lossy
    updates (`UpdateParts`)."""
    name: str
    step: int
    error: float
    """Error relative to the reference, if that is not zero; for an update, relative to the weight's movement."""
    used: float
    """Error divided by its bound; above 1 it is too large. Infinite for an unequal exact value, or a missing one."""
    shown: float = 0.0
    """Relative error that rounding of the weight itself does not explain; for inexact gradients equal to `error`."""

    @property
    def failed(self) -> bool:
        """True if the error is not within its bound; NaN fails."""
        return not self.used <= 1.0


def loss(step: int, found: float, base: float, truth: float, close: Closeness, moved: float | None = None) -> Judged:
    """Judge a training loss; `moved` is how far rounded weights and inputs move it, which widens a lossy bound."""
    if close.kind == "exact":
        apart = over(abs(found - base), abs(base))
        return Judged("loss", "loss", step, apart, 0.0 if found == base else float("inf"))
    return _inexact_loss("loss", step, found, base, truth, close, moved)


def evaluation(
    step: int,
    group: int,
    found: float,
    base: float,
    close: Closeness,
    truth: float | None = None,
    moved: float | None = None,
) -> Judged:
    """Judge the loss of a group of an evaluation's batches, which adds them up in an order of its own.

    Without `truth` the float32 baseline takes its place: the bound is then `EVALUATION_ROUNDOFFS` of it, or for lossy
    values the part that the technique states.
    """
    name = f"group {group} of the validation batches"
    if truth is not None:
        return replace(_inexact_loss("evaluation", step, found, base, truth, close, moved), name=name)
    if math.isnan(found) and math.isnan(base):  # neither counts a target
        return Judged("evaluation", name, step, 0.0, 0.0)
    stated = close.loss if close.kind == "lossy" else EVALUATION_ROUNDOFFS * unit_roundoff(torch.float32)
    error = abs(found - base)
    return Judged("evaluation", name, step, over(error, abs(base)), over(error, stated * abs(base)))


def norm(step: int, found: float, base: Computed, gradients: Mapping[str, Tensor], rounded: Computed | None) -> Judged:
    """Judge the logarithm of a norm before clipping, which the gradients at the optimizer do not show.

    Without clipping norms differ by no more than the gradients do: |‖x‖ − ‖y‖| ≤ ‖x − y‖. Clipping hides an error of
    scale, so a lossy norm may also be off by a multiple of what rounding does to it.
    """
    squares = []
    for name, reference in base.gradients.items():
        own = gradients.get(name)
        if own is not None and own.shape == reference.shape:
            own = own.to(reference)
            off = 0.0 if same(own, reference) else _norm(own - reference)
            squares.append((off**2, base.norms[name] ** 2))
    apart, size = (sum(one) ** 0.5 for one in zip(*squares, strict=True)) if squares else (0.0, 1.0)
    if not math.isfinite(base.log_norm):
        return Judged("norm", "the gradients", step, 0.0, 0.0)
    moved = 0.0 if rounded is None else abs(math.expm1(rounded.log_norm - base.log_norm))
    error = abs(math.expm1(found - base.log_norm))
    bound = NORM_ERROR + 1.5 * apart / (size or 1.0) + GRADIENT_RATIO * moved
    return Judged("norm", "the gradients", step, error, over(error, bound))


def _inexact_loss(
    what: Literal["loss", "evaluation"],
    step: int,
    found: float,
    base: float,
    truth: float,
    close: Closeness,
    moved: float | None,
) -> Judged:
    error = abs(found - truth)
    if close.kind == "lossy":
        bound = max(close.loss * abs(truth), 0.0 if moved is None else GRADIENT_RATIO * moved)
    else:
        bound = GRADIENT_RATIO * max(abs(base - truth), unit_roundoff(torch.float32) * abs(truth))
    return Judged(what, what, step, over(error, abs(truth)), over(error, bound))


def gradient(
    step: int,
    name: str,
    found: Tensor | None,
    base: Tensor,
    truth: Tensor,
    close: Closeness,
    typical: float,
    rounded: Tensor | None = None,
) -> Judged:
    """Judge one gradient; `typical` is the root mean square of all elements of the true gradients.

    `rounded` is the true gradient at rounded weights, which widens a lossy bound.
    """
    if found is None or found.shape != truth.shape:
        return Judged("gradient", name, step, float("inf"), float("inf"))
    if close.kind == "exact":
        if torch.equal(found, base):
            return Judged("gradient", name, step, 0.0, 0.0)
        return Judged("gradient", name, step, _relative(found, base), float("inf"))
    off = found - truth.double()
    error, size = _norm(off), _norm(truth)
    relative = error / size if size else error
    if close.kind == "lossy":
        least = close.small_tensor * typical * truth.numel() ** 0.5
        summed = close.vectors if truth.ndim == 1 else 0.0
        moved = torch.zeros_like(truth) if rounded is None else ROUNDED_RATIO * (rounded - truth)
        explained = _norm(moved)
        used = over(max(error - explained, 0.0), (close.relative + summed) * max(size, least))
        if size > least:
            slope = max(_slope_error(found, truth) - explained / size, 0.0)
            used = max(
                used,
                over(slope, close.slope + summed + 4 * close.relative / truth.numel() ** 0.5),
                worst_row(off, truth, moved) / (ROW_RATIO * close.relative),
            )
        return Judged("gradient", name, step, relative, used, relative)
    bound = GRADIENT_RATIO * max(_norm(base.double() - truth), unit_roundoff(torch.float32) * size)
    return Judged("gradient", name, step, relative, over(error, bound), relative)


def _slope_error(found: Tensor, truth: Tensor) -> float:
    """Return |⟨x, x₆₄⟩ / ⟨x₆₄, x₆₄⟩ − 1|: rounding errors cancel in it, a wrong scale stays."""
    return abs(float((found.double() * truth).sum() / (truth * truth).sum()) - 1)


def worst_row(off: Tensor, truth: Tensor, moved: Tensor, times: float = 1.0) -> float:
    """Return the largest relative error of a row that is `off`, beyond so many `times` what it `moved` by.

    It is 0 for vectors. Small rows count as a tenth of a typical one.
    """
    if truth.ndim < 2:
        return 0.0
    errors, sizes, explained = (one.flatten(1).norm(dim=1) for one in (off, truth, moved))
    return float(
        ((errors - times * explained).clamp(min=0.0) / sizes.clamp(min=0.1 * float(sizes.square().mean().sqrt()))).max()
    )


def update(
    step: int,
    name: str,
    before: Tensor,
    found: Tensor,
    replayed: Tensor,
    close: Closeness,
    *,
    rounded: bool,
    shaken: Tensor | None = None,
) -> Judged:
    """Judge one weight after an update; `rounded` is true if the replay rounded it to its dtype.

    `shaken` is a replay whose gradient is off by a roundoff. Its distance from the other replay widens the bound.
    """
    if same(found, replayed):
        return Judged("update", name, step, 0.0, 0.0)
    wide = replayed.double()
    error, moved, size = _norm(found - wide), _norm(wide - before), _norm(replayed)
    spread = 0.0 if shaken is None else GRADIENT_RATIO * _norm(shaken - wide)
    return update_of(step, name, error, moved, size, close, found.dtype, rounded=rounded, spread=spread)


def update_of(
    step: int,
    name: str,
    error: float,
    moved: float,
    size: float,
    close: Closeness,
    dtype: torch.dtype,
    *,
    rounded: bool,
    spread: float = 0.0,
) -> Judged:
    """Judge an update by its norms: of its error, of the weight's movement, and of the weight after it.

    The weight may be off by two roundoffs of its `dtype`, and by a fifth of one if the replay `rounded` it.
    """
    own = (0.2 if rounded else 2.0) * unit_roundoff(dtype) * size
    relative = close.relative if close.kind == "lossy" else UPDATE_RATIO * unit_roundoff(torch.float32)
    scale, bound = moved or 1.0, own + relative * moved + spread
    return Judged("update", name, step, error / scale, over(error, bound), max(0.0, error - own) / scale)


def state(step: int, name: str, found: Tensor, replayed: Tensor, *, rounded: bool) -> Judged:
    """Judge one tensor of an optimizer's state; `rounded` is true if fewer than 32 bits decide it."""
    if same(found, replayed):
        return Judged("state", name, step, 0.0, 0.0)
    return state_of(step, name, _norm(found - replayed.double()), _norm(replayed), rounded=rounded)


def state_of(step: int, name: str, error: float, size: float, *, rounded: bool) -> Judged:
    """Judge a tensor of an optimizer's state by the norms of its error and of its replay."""
    bound = (ROUNDED_STATE_ERROR if rounded else STATE_ERROR) * size
    return Judged("state", name, step, error / size if size else error, over(error, bound))


def sentences(judged: list[Judged]) -> list[str]:
    """Return sentences on the values that are wrong, the first steps first; many of them are counted."""
    failed = sorted((one for one in judged if one.failed), key=lambda one: (one.step, one.what != "loss", -one.used))
    said = [_sentence(one) for one in failed[:_SHOWN]]
    return said + ([f"{len(failed) - _SHOWN} more values are wrong"] if len(failed) > _SHOWN else [])


def _sentence(one: Judged) -> str:
    what = "the loss" if one.what == "loss" else f"the {one.what} of {one.name}"
    if one.what in _POOLED:
        return (
            f"the {one.what} of the gradients of {one.name}, over all layers, is off by {one.error:.2g}, "
            f"{one.used:.3g} times its bound"
        )
    if one.what in ("step", "decay"):
        return f"the size of {what} is off by {one.error:.2g}, {one.used:.3g} times its bound"
    if one.used == float("inf"):
        return f"{what} in step {one.step} differs from the reference (relative error {one.error:.1e})"
    return f"{what} in step {one.step} has a relative error of {one.error:.1e}, {one.used:.3g} times its bound"


def worst(judged: list[Judged], what: str) -> float | None:
    """Return the largest error of one kind of value; None without any."""
    return max((one.error for one in judged if one.what == what), default=None)


def figures(judged: list[Judged]) -> dict[str, Any]:
    """Return the figures of a `ValueProof` that follow from judged values."""
    return {
        "gradients": len({one.name for one in judged if one.what == "gradient"}),
        "loss_error": worst(judged, "loss"),
        "gradient_error": worst(judged, "gradient"),
        "update_error": worst(judged, "update"),
        "used": max((one.used for one in judged), default=0.0),
    }


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return half of the distance between neighbours above 1."""
    return torch.finfo(dtype).eps / 2


def pad_rows(tensor: Tensor, rows: int) -> Tensor:
    """Return the tensor with rows of zeros appended up to `rows`, as the program keeps it."""
    if len(tensor) == rows:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def _relative(found: Tensor, reference: Tensor) -> float:
    size = _norm(reference)
    error = _norm(found.double() - reference.double())
    return error / size if size else error


def over(error: float, bound: float) -> float:
    """Return the error divided by its bound; infinite for an error where none is allowed."""
    return error / bound if bound else (0.0 if error == 0 else float("inf"))


def same(found: Tensor, replayed: Tensor) -> bool:
    """Return whether two tensors of one dtype are equal, element by element."""
    return found.dtype is replayed.dtype and torch.equal(found, replayed)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


_FLOAT32_ERROR = 2e-8
"""Error of a lossy evaluation's group, relative to float32's loss, that rounding hardly ever is below."""


def wide_groups(judged: Sequence[Judged], close: Closeness) -> int:
    """Return how many groups of a lossy evaluation have float32's loss."""
    if close.rounding is None or close.kind != "lossy":
        return 0
    return sum(one.error < _FLOAT32_ERROR for one in judged if one.what == "evaluation")


def too_wide(groups: int) -> list[str]:
    """Return a sentence if so many groups of a lossy run's evaluations have float32's loss that it is no chance."""
    if groups < WIDE_GROUPS:
        return []
    return [f"{groups} evaluated groups have float32's loss, and not that of fewer bits"]


def too_equal(judged: Sequence[Judged], expected: Expected) -> list[str]:
    """Return a sentence on gradients, and on updates, that all lack the error which rounding must cause."""
    found = []
    for what, close in (("gradient", expected.gradients), ("update", expected.updates)):
        errors = [one.shown for one in judged if one.what == what]
        if errors and max(errors) < close.at_least:
            found.append(
                f"no {what} has the rounding error that the optimizations must cause: "
                f"the largest relative error is {max(errors):.1e}"
            )
    return found
