"""How near is near: bounds on the error of a loss, a gradient and an updated weight, and where they come from.

Errors are Euclidean norms over one tensor. A float64 baseline is the truth.

Reassociated values: |x − x₆₄| ≤ K·max(|x₃₂ − x₆₄|, u·|x₆₄|), with x₃₂ the float32 baseline and u = 2⁻²⁴, its roundoff.
The float32 baseline's own error says how hard the tensor is to compute: the gradient of a key bias is zero in truth and
rounding in practice, and its bound is rounding, too. K is 8 for losses and gradients:
200 honest configurations reach 1.9 (docs/measured/values.md), and other machines add up in other orders.

Lossy values: |x − x₆₄| ≤ ρ·|x₆₄| with the bound ρ that the technique states. For tensors far smaller than others the
bound is ρ·0.01 of the size that all gradients have on average: rounding of large values reaches them, too.

Updates: |w′ − w″| ≤ 2·u·|w″| + (ρ or K·u)·|w″ − w|, for a weight w, the program's w′ and the replay's w″.
The first term is the rounding of the weight, the second that of the step. Where the replay rounds the weight itself,
few elements can be rounded to another neighbour, and the first term is a tenth.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.reference.expected import Closeness

GRADIENT_RATIO = 8.0
"""K of losses and gradients."""
UPDATE_RATIO = 64.0
"""K of updates."""
SMALL_TENSOR = 0.01
"""Share of the mean size of gradients below which a lossy gradient is held to that share."""
STATE_ERROR = 0.05
"""Largest relative error of a moment that is kept in 8 bits."""
_UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Unit roundoff: half of the distance between neighbours around 1."""


@dataclass(frozen=True)
class Judged:
    """One value against its bound."""

    what: Literal["loss", "gradient", "update", "state"]
    name: str
    step: int
    error: float
    """Relative to the reference, where that is not zero; of an update, relative to how far the weight moved."""
    used: float
    """Error over bound; above 1 it is too far. Infinite for an exact value that is not equal, or none at all."""
    shown: float = 0.0
    """The relative error that rounding the weight itself does not explain; for gradients the same as `error`."""

    @property
    def failed(self) -> bool:
        """Whether the value is not as near as it must be."""
        return not self.used <= 1.0


def loss(step: int, found: float, base: float, truth: float, close: Closeness) -> Judged:
    """Judge a loss in nats per token."""
    error = abs(found - truth)
    if close.kind == "exact":
        return Judged("loss", "loss", step, abs(found - base) / abs(base), 0.0 if found == base else float("inf"))
    if close.kind == "lossy":
        bound = close.loss * abs(truth)
    else:
        bound = GRADIENT_RATIO * max(abs(base - truth), _UNIT[torch.float32] * abs(truth))
    return Judged("loss", "loss", step, error / abs(truth), _over(error, bound))


def gradient(
    step: int, name: str, found: Tensor | None, base: Tensor, truth: Tensor, close: Closeness, typical: float
) -> Judged:
    """Judge one gradient; `typical` is the root mean square of all gradients' elements in truth."""
    if found is None or found.shape != truth.shape:
        return Judged("gradient", name, step, float("inf"), float("inf"))
    if close.kind == "exact":
        same = torch.equal(found, base)
        return Judged("gradient", name, step, _relative(found, base), 0.0 if same else float("inf"))
    error, size = _norm(found.double() - truth), _norm(truth)
    if close.kind == "lossy":
        bound = close.relative * max(size, SMALL_TENSOR * typical * truth.numel() ** 0.5)
    else:
        bound = GRADIENT_RATIO * max(_norm(base.double() - truth), _UNIT[torch.float32] * size)
    relative = _relative(found, truth)
    return Judged("gradient", name, step, relative, _over(error, bound), relative)


def update(
    step: int, name: str, before: Tensor, found: Tensor, replayed: Tensor, close: Closeness, *, rounded: bool
) -> Judged:
    """Judge one weight after an update; `rounded` says that the replay rounded it to its dtype."""
    error, moved = _norm(found.double() - replayed.double()), _norm(replayed.double() - before.double())
    own = (0.2 if rounded else 2.0) * _UNIT[found.dtype] * _norm(replayed)
    relative = close.relative if close.kind == "lossy" else UPDATE_RATIO * _UNIT[torch.float32]
    size = moved or 1.0
    return Judged(
        "update", name, step, error / size, _over(error, own + relative * moved), max(0.0, error - own) / size
    )


def state(step: int, name: str, found: Tensor, replayed: Tensor) -> Judged:
    """Judge one tensor of an optimizer's state that is rounded on purpose."""
    error, size = _norm(found.double() - replayed.double()), _norm(replayed)
    return Judged("state", name, step, error / size if size else error, _over(error, STATE_ERROR * size))


def padded(tensor: Tensor, rows: int) -> Tensor:
    """The tensor with rows of zeros behind it, as the program keeps it."""
    if len(tensor) == rows:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def _relative(found: Tensor, reference: Tensor) -> float:
    size = _norm(reference)
    error = _norm(found.double() - reference.double())
    return error / size if size else error


def _over(error: float, bound: float) -> float:
    return error / bound if bound else (0.0 if error == 0 else float("inf"))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))
