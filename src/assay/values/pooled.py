"""Lossy gradients of all layers together, against the errors of honest rounding.

Rounding errors average out over elements and tensors, and what is systematic stays. An imitation x₁₆ rounds as the
program does, at the same weights (`assay.values.rounding`). Its distance from x₆₄ shows how far rounding moves each
gradient x. Three kinds of bounds follow, for every tensor and for every group: attention, MLPs, norms, embeddings.

- *Residual.* The relative error of a tensor is at most 6·a·D, and that of a group, as a root mean square, 2.5·a·D. D is
  the distance |x₁₆ − x₆₄| / |x₆₄| of the tensor or of its group, whichever is larger. A group may be as near to x₁₆.
- *Scale.* The mean slope of a group, ⟨x, x₆₄⟩ / ⟨x₆₄, x₆₄⟩, is that of x₁₆ within 1.25·a·min(D, R). R is the distance
  of x from x₁₆ without this difference of scale. Many errors are those of x₁₆, so R may be far below D.
- *Smallest elements.* Large elements hide what happens to small ones. So the slope of the smallest tenth of a group's
  elements, and of the smallest hundredth, is 1 or that of x₁₆, within a·(1/4 + six standard errors).

After training at a high rate, attention is sharp, and a few elements carry the error. Then honest errors vary more from
one rounding to the next. So a = 1 + (D/u)²/6, with D over all tensors and the roundoff u. It is 1.4 in an ordinary run,
and at most 2 but for single rows. What misses these bounds is held against several imitations, which have other errors.
D is then their root mean square. The bounds are 6·D for a tensor and 4.5·D for a group, and a = 1 for the smallest
elements. A group's slope is that of the mean imitation within 5·max(s, 0.3·D), where s is the standard deviation of the
imitations' slopes. The standard error of the smallest elements' slope is then at least theirs.

Where rounding moves gradients by a quarter or more, as after training at a rate of 0.1, roundings differ by factors of
ten. There a has no limit, also with several imitations. Single rows are left out, and hardly anything is refused.

On a GPU cuBLAS may add up parts of a 16-bit product in 16 bits, as torch lets it. No imitation knows where it does. So
the bounds there are 4.8 times as wide if it may. An H200 had errors of groups that were up to 4.7 times as large with
it. This is the largest ratio of ten states of GPT-2, and most are below 1.5 (docs/measured/values.md).

Rounding that sends a token of a mixture to another expert moves much at once, so there the bounds that the technique
states are added.

The constants are from honest runs (docs/measured/values.md).
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.reference.expected import Closeness
from assay.values.nearness import ROW_RATIO, Judged, over, unit_roundoff, worst_row
from assay.values.rounding import dtype_of

TENSOR_RATIO, GROUP_RATIO, SCALE_RATIO = 6.0, 2.5, 1.25
AMPLIFIED, MOST = 1 / 6, 2.0
"""Growth of all bounds with the square of the mean distance D in roundoffs, by one imitation, and its limit."""
CHAOTIC = 0.25
"""Mean distance D beyond which errors of equal programs differ by factors, so that growth has no limit."""
SEVERAL_GROUP_RATIO, DEVIATIONS, LEAST_DEVIATION = 4.5, 5.0, 0.3
"""Several imitations have a ratio of a group, and multiples of the deviation of slopes, at least a part of D."""
REDUCED_REDUCTIONS = 4.8
"""Growth of all bounds on a GPU whose products may be added up in 16 bits."""
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
_LEAST_ELEMENT = 1e-4
"""Smallest element that counts, relative to all gradients' elements: float16 loses smaller ones."""

_GROUPS = {"norm": "norms", "mlp": "MLPs", "attention": "attention"}
_OTHERS = "embeddings"


@dataclass(frozen=True)
class _Smallest:
    """Sums over the smallest elements of a tensor, relative to its mean square."""

    found: float
    """Products of the program's and the true elements."""
    rounded: tuple[float, ...]
    """Products of each imitation's and the true elements."""
    truth: float
    """Squares of true elements."""
    variance: float
    """Squares of products of rounding errors and true elements, of a mean imitation."""


@dataclass(frozen=True)
class _Figures:
    """One gradient of one step; distances are relative to its size, or to the least size that counts."""

    name: str
    step: int
    relative: float
    """Error relative to the gradient's own size."""
    error: float
    moved: tuple[float, ...]
    """Distance of each imitation x₁₆ from x₆₄."""
    apart: tuple[float, ...]
    """Distance of x from each x₁₆."""
    scales: tuple[float, tuple[float, ...]] | None
    """Slopes of x and of each x₁₆; None for a gradient that is too small to have any."""
    row: float
    """Largest relative error of a row."""
    smallest: tuple[_Smallest | None, ...]


@dataclass
class Pooled:
    """Collects the gradients of recorded steps, and judges them together."""

    close: Closeness
    mixture: bool = False
    reduced: bool = False
    """True if products may be added up in 16 bits."""
    _seen: list[_Figures] = field(default_factory=list)

    def add(
        self, step: int, name: str, found: Tensor, truth: Tensor, imitations: Sequence[Tensor], typical: float
    ) -> None:
        """Add one gradient. `typical` is the root mean square of all elements of the step's true gradients.

        Every gradient has equally many imitations, which are numbered in the same order.
        """
        x, found, imitations = truth.double(), found.double(), [one.double() for one in imitations]
        off, moved = found - x, [one - x for one in imitations]
        small, least = self.close.small_tensor * typical * x.numel() ** 0.5, _LEAST_ELEMENT * typical
        size, error = _norm(x), _norm(off)
        scale, counts = max(size, small) or 1.0, size > small
        self._seen.append(
            _Figures(
                name,
                step,
                error / size if size else error,
                error / scale,
                tuple(_norm(one) / scale for one in moved),
                tuple(_norm(found - one) / scale for one in imitations),
                (_slope(found, x, size), tuple(_slope(one, x, size) for one in imitations)) if counts else None,
                min(worst_row(off, x, one, 4.0) for one in moved) if counts else 0.0,
                _smallest(found, x, imitations, least, size) if counts else (),
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
        several = any(len(one.moved) > 1 for one in self._seen)
        spread = _mean(moved for one in self._seen for moved in one.moved)
        amplified = 1 + AMPLIFIED * (spread / unit) ** 2
        grown = amplified if spread > CHAOTIC else 1.0 if several else min(amplified, MOST)
        grown *= REDUCED_REDUCTIONS if self.reduced else 1.0
        for name, members in groups.items():
            distance = max(_mean(moved for one in members for moved in one.moved), least)
            yield from self._tensors(members, distance, grown, math.inf if spread > CHAOTIC else amplified)
            yield self._residual(name, members, grown * (SEVERAL_GROUP_RATIO if several else GROUP_RATIO) * distance)
            yield from self._scale(name, members, least, grown)
            yield from self._small(name, members, grown)

    def _tensors(
        self, members: Sequence[_Figures], distance: float, grown: float, grown_rows: float
    ) -> Iterator[Judged]:
        own: dict[str, list[float]] = defaultdict(list)
        for one in members:
            own[one.name].extend(one.moved)
        for one in members:
            bound = TENSOR_RATIO * grown * max(_mean(own[one.name]), distance)
            bound += self._routed(ROUTED_RATIO * self.close.relative)
            row = one.row / (ROW_RATIO * self.close.relative * grown_rows * (ROUTED_RATIO if self.mixture else 1.0))
            yield Judged("gradient", one.name, one.step, one.relative, max(over(one.error, bound), row), one.relative)

    def _residual(self, name: str, members: Sequence[_Figures], bound: float) -> Judged:
        error = min(_mean(one.error for one in members), _mean(apart for one in members for apart in one.apart))
        return Judged("residual", name, members[0].step, error, over(error, bound + self._routed(self.close.relative)))

    def _scale(self, name: str, members: Sequence[_Figures], least: float, grown: float) -> Iterator[Judged]:
        scales = [one.scales for one in members if one.scales]
        if not scales:
            return
        slopes = [statistics.fmean(one) for one in zip(*(imitated for _, imitated in scales), strict=True)]
        off = abs(statistics.fmean(found for found, _ in scales) - statistics.fmean(slopes))
        distance = max(_mean(moved for one in members if one.scales for moved in one.moved), least)
        if len(slopes) > 1:
            bound = DEVIATIONS * grown * max(statistics.stdev(slopes), LEAST_DEVIATION * distance)
        else:
            apart = _mean(apart for one in members if one.scales for apart in one.apart)
            rest = max(apart**2 - off**2, 0.0) ** 0.5
            bound = SCALE_RATIO * grown * min(distance, max(rest, _LEAST_REST * distance))
        yield Judged("scale", name, members[0].step, off, over(off, bound + self._routed(self.close.slope)))

    def _small(self, name: str, members: Sequence[_Figures], grown: float) -> Iterator[Judged]:
        for place, share in enumerate(SHARES):
            parts = [part for one in members if one.smallest and (part := one.smallest[place])]
            truth = sum(part.truth for part in parts)
            if not truth:
                continue
            found = sum(part.found for part in parts) / truth
            slopes = [sum(one) / truth for one in zip(*(part.rounded for part in parts), strict=True)]
            off = min(abs(found - 1), abs(found - statistics.fmean(slopes)))
            spread = statistics.stdev(slopes) if len(slopes) > 1 else 0.0
            deviation = max(sum(part.variance for part in parts) ** 0.5 / truth, spread)
            bound = grown * (SMALL_ERROR + STANDARD_ERRORS * deviation)
            said = f"the smallest {share:.0%} of {name}"
            yield Judged("scale", said, members[0].step, off, over(off, bound + self._routed(SMALL_ERROR)))

    def _routed(self, allowance: float) -> float:
        return allowance if self.mixture else 0.0


def group_of(name: str) -> str:
    """Return the group of a parameter; norms inside attention are norms."""
    return next((group for part, group in _GROUPS.items() if part in name), _OTHERS)


def _smallest(
    found: Tensor, truth: Tensor, imitations: Sequence[Tensor], least: float, size: float
) -> tuple[_Smallest | None, ...]:
    """Return the sums over each share of the smallest elements larger than `least`; None if there are too few.

    `size` is the norm of `truth`.
    """
    sizes, x, y, *rounded = (one.flatten() for one in (truth.abs(), truth, found, *imitations))
    total = int((sizes > least).count_nonzero())
    if total < _FEWEST:
        return (None,) * len(SHARES)
    weight, sums = truth.numel() / size**2, list[_Smallest | None]()
    ignored = len(sizes) - total
    for share in SHARES:  # each is among the elements of the one before
        chosen = _places_of_smallest(sizes, ignored + max(1, int(share * total)))
        if ignored:
            chosen, ignored = chosen[sizes[chosen] > least], 0
        sizes, x, y, *rounded = (one.index_select(0, chosen) for one in (sizes, x, y, *rounded))
        sums.append(
            _Smallest(
                weight * float(y @ x),
                tuple(weight * float(one @ x) for one in rounded),
                weight * float(x @ x),
                weight**2 * statistics.fmean(float(((one - x) * x).square().sum()) for one in rounded),
            )
        )
    return tuple(sums)


def _places_of_smallest(sizes: Tensor, number: int) -> Tensor:
    """Return the indices of so many smallest elements of a vector, in any order.

    Torch's `kthvalue` is slow: with 16 thousand elements on a CPU it takes eight times as long as numpy. On CUDA it
    searches a vector with one block of threads, so 100 million elements take 20 times as long as to be sorted
    (pytorch/pytorch#75599).
    """
    if sizes.is_cuda:
        return sizes.sort().indices[:number]
    return torch.from_numpy(np.argpartition(sizes.numpy(), number - 1)[:number])


def _slope(found: Tensor, truth: Tensor, size: float) -> float:
    return float(found.flatten() @ truth.flatten()) / size**2


def _mean(values: Iterable[float]) -> float:
    """Return the root mean square."""
    listed = list(values)
    return math.sqrt(sum(one * one for one in listed) / len(listed)) if listed else 0.0


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
