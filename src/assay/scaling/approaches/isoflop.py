"""Approach 2: at each budget a parabola of the loss in log N, its minimum, and a power law through the minima.

Budgets are found in the points: runs whose C differ by at most a tenth share one (Hoffmann et al. 2022, section 3.2). C
is 6·N·D, or what the runs count where that contradicts it. A budget needs three sizes. Three determine a parabola
exactly, so that its minimum has no error that shows. A minimum outside of the sizes of its budget is an extrapolation,
and does not count. The bootstrap draws runs within budgets.
"""

from dataclasses import dataclass

import numpy as np

from assay.errors import UsageError
from assay.scaling.accounting import accounting, spent_flops
from assay.scaling.approaches.frontier import Line, Optima, line, optima
from assay.scaling.points import Floats, Points

_SAME_BUDGET = 1.1
"""Largest ratio of the FLOPs of one budget."""
LEAST_SIZES = 3
"""Sizes of a budget that has a parabola."""


@dataclass(frozen=True)
class Parabola:
    """Losses of a budget as a·x² + b·x + c with x = log(N/centre)."""

    flops: float
    """Geometric mean of its runs."""
    sizes: Floats
    losses: Floats
    centre: float
    coefficients: tuple[float, float, float]

    @property
    def minimum(self) -> float | None:
        """N of the lowest loss; None if the parabola opens downwards."""
        a, b, _ = self.coefficients
        return float(self.centre * np.exp(-b / (2 * a))) if a > 0 else None

    @property
    def inside(self) -> float | None:
        """N of the lowest loss, if it lies within the sizes of the budget."""
        lowest = self.minimum
        return lowest if lowest is not None and self.sizes.min() <= lowest <= self.sizes.max() else None

    def loss(self, parameters: "Floats | float") -> Floats:
        """Return the loss of a size."""
        return np.asarray(np.polyval(self.coefficients, np.log(np.asarray(parameters) / self.centre)))


@dataclass(frozen=True)
class IsoFlop:
    """Parabolas of all budgets, the smallest first, and the power laws through their minima."""

    parabolas: tuple[Parabola, ...]
    optima: Optima


def isoflop(points: Points, draws: int = 200, seed: int = 0) -> IsoFlop:
    """Fit approach 2 to points. Raises `UsageError` if fewer than two budgets have a minimum within their sizes."""
    counted = accounting(points)
    groups = budgets(points)
    if not groups:
        raise UsageError(
            "no budget has three sizes: runs share a budget if their 6·N·D differs by at most a tenth; add sizes to "
            "each budget"
        )
    found = tuple(map(_parabola, groups))
    warnings = [_warning(one) for one in found if one.inside is None]
    best = [(one.flops, one.inside) for one in found if one.inside is not None]
    if len(best) < 2:
        raise UsageError(
            f"{len(best)} of {len(found)} budgets with three sizes or more {'has' if len(best) == 1 else 'have'} a "
            "lowest loss within their sizes; two are needed, so add budgets, or sizes on both sides"
        )
    chance = np.random.default_rng(seed)
    drawn = [_drawn(groups, chance) for _ in range(draws)]
    flops, sizes = np.array(best).T
    return IsoFlop(found, optima(flops, sizes, drawn, warnings, counted))


def budgets(points: Points) -> list[Points]:
    """Return the points of each budget that has three sizes or more, the smallest budget first."""
    groups: list[list[int]] = []
    spent = spent_flops(points)
    for place in np.argsort(spent, kind="stable"):
        if groups and spent[place] <= _SAME_BUDGET * spent[groups[-1][0]]:
            groups[-1].append(int(place))
        else:
            groups.append([int(place)])
    every = (points.where(np.array(group)) for group in groups)
    return [one for one in every if len(np.unique(one.parameters)) >= LEAST_SIZES]


def _parabola(points: Points) -> Parabola:
    logs = np.log(points.parameters)
    a, b, c = np.polyfit(logs - logs.mean(), points.loss, 2)
    flops = float(np.exp(np.log(spent_flops(points)).mean()))
    return Parabola(flops, points.parameters, points.loss, float(np.exp(logs.mean())), (float(a), float(b), float(c)))


def _warning(one: Parabola) -> str:
    if one.minimum is None:
        return f"At {one.flops:.3g} FLOPs the losses have no lowest size: the parabola opens downwards."
    side = "smaller" if one.minimum < one.sizes.min() else "larger"
    return f"At {one.flops:.3g} FLOPs the minimum is outside of the sizes: add {side} models. It does not count."


def _drawn(groups: list[Points], chance: np.random.Generator) -> Line | None:
    """Return the line of one draw of the runs within budgets; None if too few minima are left."""
    best = []
    for group in groups:
        some = group.where(chance.integers(0, len(group), len(group)))
        if len(np.unique(some.parameters)) >= LEAST_SIZES:
            one = _parabola(some)
            if one.minimum is not None and group.parameters.min() <= one.minimum <= group.parameters.max():
                best.append((one.flops, one.minimum))
    if len(best) < 2:
        return None
    flops, sizes = np.array(best).T
    return line(flops, sizes)
