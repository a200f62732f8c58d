"""Lossy gradients of all layers together, against the errors of honest rounding.

Rounding errors average out over elements, tensors and steps, and what is systematic stays. The reference x₁₆ rounds as
the program does, at the same weights (`assay.values.rounding`). Its distance from x₆₄ shows how far rounding moves each
gradient x. Three kinds of bounds follow, for every tensor and for every group: attention, MLPs, norms, embeddings.

- *Residual.* The relative error of a tensor is at most 6·a·D, and that of a group, as a root mean square, 2.5·a·D. D is
  the distance |x₁₆ − x₆₄| / |x₆₄| of the tensor or of its group, whichever is larger. A group may be as near to x₁₆.
- *Scale.* The mean slope of a group, ⟨x, x₆₄⟩ / ⟨x₆₄, x₆₄⟩, is that of x₁₆ within 1.25·a·min(D, R). R is the distance
  of x from x₁₆ without this difference of scale. Many errors are those of x₁₆, so R may be far below D.
- *Smallest elements.* Large elements hide what happens to small ones. So the slope of the smallest tenth of a group's
  elements, and of the smallest hundredth, is 1 or that of x₁₆, within a·(1/4 + six standard errors).

After training at a high rate, attention is sharp, and a few elements carry the error. Then honest errors vary more from
one rounding to the next. So a = 1 + (D/u)²/6 with D over all tensors and the roundoff u. It is 1.4 in an ordinary run.
Where rounding moves gradients by a third or more, as at a rate of 0.1, it is so large that hardly anything is refused.
Rounding that sends a token of a mixture to another expert moves much at once, so there the bounds that the technique
states are added.

The constants are from honest runs (docs/measured/values.md).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.reference.expected import Closeness
from assay.values.nearness import ROW_RATIO, Judged, over, unit_roundoff, worst_row
from assay.values.rounding import dtype_of

TENSOR_RATIO, GROUP_RATIO, SCALE_RATIO = 6.0, 2.5, 1.25
AMPLIFIED = 1 / 6
"""Growth of all bounds with the square of the mean distance D in roundoffs."""
SMALL_ERROR, STANDARD_ERRORS = 0.25, 6.0
"""Bound of the slope of small elements: a part of it, and multiples of its standard error."""
SHARES = (0.1, 0.01)
"""Shares of smallest elements that are looked at by themselves."""
ROUTED_RATIO = 4.0
"""Factor on a mixture's stated bound of one tensor."""
_LEAST_DISTANCE = 0.25
"""Smallest distance D that is assumed, in roundoffs."""
_LEAST_REST = 0.5
"""Smallest distance R that is assumed, relative to D."""
_FEWEST = 20
"""Elements of a tensor, at least, whose smallest are looked at."""

_GROUPS = {"norm": "norms", "mlp": "MLPs", "attention": "attention"}
_OTHERS = "embeddings"


@dataclass(frozen=True)
class _Smallest:
    """Sums over the smallest elements of a tensor, relative to its mean square."""

    found: float
    """Products of the program's and the true elements."""
    rounded: float
    """Products of the rounded reference's and the true elements."""
    truth: float
    """Squares of true elements."""
    variance: float
    """Squares of products of rounding errors and true elements."""


@dataclass(frozen=True)
class _Figures:
    """One gradient of one step; distances are relative to its size, or to the least size that counts."""

    name: str
    step: int
    relative: float
    """Error relative to the gradient's own size."""
    error: float
    moved: float
    """Distance of x₁₆ from x₆₄."""
    apart: float
    """Distance of x from x₁₆."""
    scales: tuple[float, float] | None
    """Slopes of x and x₁₆; None for a gradient that is too small to have any."""
    row: float
    """Largest relative error of a row."""
    smallest: tuple[_Smallest | None, ...]


@dataclass
class Pooled:
    """Collects the gradients of recorded steps, and judges them together."""

    close: Closeness
    mixture: bool = False
    _seen: list[_Figures] = field(default_factory=list)

    def add(self, step: int, name: str, found: Tensor, truth: Tensor, rounded: Tensor, typical: float) -> None:
        """Add one gradient. `typical` is the root mean square of all elements of the step's true gradients."""
        x, found, rounded = (one.double() for one in (truth, found, rounded))
        least = self.close.small_tensor * typical * x.numel() ** 0.5
        size = _norm(x)
        error, moved, apart = (_norm(one) for one in (found - x, rounded - x, found - rounded))
        scale, counts = max(size, least) or 1.0, size > least
        self._seen.append(
            _Figures(
                name,
                step,
                error / size if size else error,
                error / scale,
                moved / scale,
                apart / scale,
                (_slope(found, x, size), _slope(rounded, x, size)) if counts else None,
                worst_row(found, x, 4 * (rounded - x)) if counts else 0.0,
                tuple(_smallest(found, x, rounded, share) if counts else None for share in SHARES),
            )
        )

    def judged(self) -> Iterator[Judged]:
        """Judge every gradient, and every group over all tensors and steps."""
        if self.close.rounding is None:
            return
        unit = unit_roundoff(dtype_of(self.close.rounding))
        least = _LEAST_DISTANCE * unit
        groups: dict[str, list[_Figures]] = defaultdict(list)
        for one in self._seen:
            groups[group_of(one.name)].append(one)
        grown = 1 + AMPLIFIED * (_mean(one.moved for one in self._seen) / unit) ** 2
        for name, members in groups.items():
            distance = max(_mean(one.moved for one in members), least)
            yield from self._tensors(members, distance, grown)
            yield self._residual(name, members, distance, grown)
            yield from self._scale(name, members, least, grown)
            yield from self._small(name, members, grown)

    def _tensors(self, members: Sequence[_Figures], distance: float, grown: float) -> Iterator[Judged]:
        own: dict[str, list[float]] = defaultdict(list)
        for one in members:
            own[one.name].append(one.moved)
        for one in members:
            bound = TENSOR_RATIO * grown * max(_mean(own[one.name]), distance)
            bound += self._routed(ROUTED_RATIO * self.close.relative)
            row = one.row / (ROW_RATIO * self.close.relative * grown * (ROUTED_RATIO if self.mixture else 1.0))
            yield Judged("gradient", one.name, one.step, one.relative, max(over(one.error, bound), row), one.relative)

    def _residual(self, name: str, members: Sequence[_Figures], distance: float, grown: float) -> Judged:
        error = min(_mean(one.error for one in members), _mean(one.apart for one in members))
        bound = GROUP_RATIO * grown * distance + self._routed(self.close.relative)
        return Judged("residual", name, members[0].step, error, over(error, bound))

    def _scale(self, name: str, members: Sequence[_Figures], least: float, grown: float) -> Iterator[Judged]:
        differences = [one.scales[0] - one.scales[1] for one in members if one.scales]
        if not differences:
            return
        off = abs(sum(differences) / len(differences))
        distance = max(_mean(one.moved for one in members if one.scales), least)
        rest = max(_mean(one.apart for one in members if one.scales) ** 2 - off**2, 0.0) ** 0.5
        bound = SCALE_RATIO * grown * min(distance, max(rest, _LEAST_REST * distance))
        yield Judged("scale", name, members[0].step, off, over(off, bound + self._routed(self.close.slope)))

    def _small(self, name: str, members: Sequence[_Figures], grown: float) -> Iterator[Judged]:
        for place, share in enumerate(SHARES):
            parts = [part for one in members if one.smallest and (part := one.smallest[place])]
            truth = sum(part.truth for part in parts)
            if not truth:
                continue
            found, rounded = (sum(one) / truth for one in zip(*((p.found, p.rounded) for p in parts), strict=True))
            off = min(abs(found - 1), abs(found - rounded))
            deviation = sum(part.variance for part in parts) ** 0.5 / truth
            bound = grown * (SMALL_ERROR + STANDARD_ERRORS * deviation)
            said = f"the smallest {share:.0%} of {name}"
            yield Judged("scale", said, members[0].step, off, over(off, bound + self._routed(SMALL_ERROR)))

    def _routed(self, allowance: float) -> float:
        return allowance if self.mixture else 0.0


def group_of(name: str) -> str:
    """Return the group of a parameter; norms inside attention are norms."""
    return next((group for part, group in _GROUPS.items() if part in name), _OTHERS)


def _smallest(found: Tensor, truth: Tensor, rounded: Tensor, share: float) -> _Smallest | None:
    """Return the sums over the smallest elements that are not zero; None if these are too few."""
    sizes = truth.abs().flatten()
    sizes = sizes[sizes > 0]
    if len(sizes) < _FEWEST:
        return None
    largest = sizes.kthvalue(max(1, int(share * len(sizes)))).values
    chosen = (truth.abs() <= largest) & (truth != 0)
    x, y, z = truth[chosen], found[chosen], rounded[chosen]
    weight = truth.numel() / float(truth.square().sum())
    sums = ((y * x).sum(), (z * x).sum(), x.square().sum(), weight * ((z - x) * x).square().sum())
    return _Smallest(*(weight * float(one) for one in sums))


def _slope(found: Tensor, truth: Tensor, size: float) -> float:
    return float((found * truth).sum()) / size**2


def _mean(values: Iterable[float]) -> float:
    """Return the root mean square."""
    listed = list(values)
    return math.sqrt(sum(one * one for one in listed) / len(listed)) if listed else 0.0


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
