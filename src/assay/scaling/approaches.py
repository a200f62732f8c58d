"""Approaches that fit an optimum and no loss: parabolas at equal compute, and the envelope of training curves.

D follows from C = 6·N·D, so a + b = 1, or from C as the runs count it (`scaling.points`). The published exponents
of approach 1 are 0.50 and 0.50, and of approach 2 0.49 and 0.51 (Hoffmann et al. 2022, table 2). Intervals are those of
a bootstrap of the runs.

Budgets are found in the points: runs whose C differ by at most a tenth share one (Hoffmann et al. 2022, section 3.2). C
is 6·N·D, or what the runs count where that contradicts it. A budget needs three sizes. Three determine a parabola
exactly, so that its minimum has no error that shows. A minimum outside of the sizes of its budget is an extrapolation,
and does not count. The bootstrap draws runs within budgets, or trunks with their points of all budgets.

At each of many computes, evenly in log C, the run with the lowest loss gives the optimal N (Hoffmann et al. 2022,
section 3.1). Losses between the points of a curve are interpolated in logarithms. A compute counts only where the best
run is neither of the smallest size nor of the largest. At the ends the best size may be outside. It also needs two
sizes that have reached it. The bootstrap draws runs.

A loss in the middle of a training is that of a learning rate which has not decayed yet. The envelope of few lengths of
schedules is therefore too high. The paper trains each size with four lengths. Smooth the losses before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.errors import UsageError
from assay.scaling.law_intervals import LEAST_DRAWS, Interval, quantiles
from assay.scaling.points import (
    FLOPS_PER_PARAMETER_AND_TOKEN,
    PLAIN,
    Accounting,
    Floats,
    Points,
    accounting,
    planned_points,
    points_table,
    read_points,
    run_names,
    spent_flops,
)
from assay.units import format_count

_SAME = 1e-9
"""Difference of equal exponents."""


@dataclass(frozen=True)
class PowerOfCompute:
    """A quantity at the optimum, as level · C^exponent."""

    level: float
    exponent: float
    interval: Interval | None
    """95 % interval of the exponent; None if the runs are too few for one."""

    def at(self, flops: float) -> float:
        """Return the quantity at a compute."""
        return float(self.level * flops**self.exponent)


@dataclass(frozen=True)
class Optima:
    """Optimal sizes at several computes, and the power laws through them."""

    flops: Floats
    parameters: Floats
    size: PowerOfCompute
    data: PowerOfCompute
    draws: int
    """Draws of the bootstrap that had an optimum."""
    warnings: tuple[str, ...] = ()
    """Sentences on what the runs do not determine."""
    accounting: Accounting = PLAIN
    """Ratio of counted FLOPs to 6·N·D."""

    def at(self, flops: float) -> tuple[float, float]:
        """Return the optimal N and D of a compute."""
        return self.size.at(flops), self.data.at(flops)


Line = tuple[float, float]
"""Exponent and logarithm of the level of N by C."""


def line(flops: Floats, parameters: Floats) -> Line:
    """Return the line through the logarithms of optima. Raises `UsageError` for fewer than two computes."""
    if len(np.unique(flops)) < 2:
        raise UsageError("a power law of the optimum needs optima at two computes or more; add budgets")
    exponent, level = np.polyfit(np.log(flops), np.log(parameters), 1)
    return float(exponent), float(level)


def optima(
    flops: Floats,
    parameters: Floats,
    drawn: Sequence[Line | None],
    warnings: Sequence[str],
    accounting: Accounting = PLAIN,
) -> Optima:
    """Return the power laws through optima, with intervals from the lines of a bootstrap; None is a draw without.

    FLOPs are as `accounting` counts them.
    """
    exponent, level = line(flops, parameters)
    exponents = [one[0] for one in drawn if one is not None]
    ends = _interval(exponents)
    grown = 1 + accounting.power  # power of N by which the FLOPs of a token grow
    per_token = np.log(FLOPS_PER_PARAMETER_AND_TOKEN * accounting.level)
    return Optima(
        flops,
        parameters,
        PowerOfCompute(float(np.exp(level)), exponent, ends),
        PowerOfCompute(
            float(np.exp(-grown * level - per_token)),
            1 - grown * exponent,
            ends and (1 - grown * ends[1], 1 - grown * ends[0]),
        ),
        len(exponents),
        (*filter(None, (accounting.warning,)), *warnings, *_cautions(len(exponents), len(drawn), ends)),
        accounting,
    )


def _interval(exponents: Sequence[float]) -> Interval | None:
    """Return the interval of an exponent; None for few draws, and if they are all the same."""
    if len(exponents) < LEAST_DRAWS or np.ptp(exponents) < _SAME:
        return None
    return quantiles(exponents)


def _cautions(kept: int, asked: int, ends: Interval | None) -> Iterator[str]:
    """Yield sentences on draws that have no optimum, and on an interval that is missing."""
    if kept < asked:
        had = "draw had no optimum within its sizes, and is" if asked - kept == 1 else "draws had no optimum, and are"
        yield f"{asked - kept} of {asked} {had} left out of the intervals."
    if ends is None:
        why = f"only {kept} draws are left" if kept < LEAST_DRAWS else "all draws are the same"
        yield f"The exponents have no interval, because {why}. More runs would give one."


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
    draw = _single_runs if points.trunk is None else _whole_trunks
    drawn = [_line_of(groups, draw(groups, chance)) for _ in range(draws)]
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


def _single_runs(groups: list[Points], chance: np.random.Generator) -> list[Points]:
    """Return one draw of the runs of each budget."""
    return [group.where(chance.integers(0, len(group), len(group))) for group in groups]


def _whole_trunks(groups: list[Points], chance: np.random.Generator) -> list[Points]:
    """Return one draw of trunks, whose points are in the budgets as often as the trunk was drawn."""
    trunks = [np.arange(len(group)) if group.trunk is None else group.trunk for group in groups]
    names = np.unique(np.concatenate(trunks))
    times = np.bincount(chance.integers(0, len(names), len(names)), minlength=len(names))
    return [
        group.where(np.repeat(np.arange(len(group)), times[np.searchsorted(names, trunk)]))
        for group, trunk in zip(groups, trunks, strict=True)
    ]


def _line_of(groups: list[Points], drawn: list[Points]) -> Line | None:
    """Return the line of one draw of the runs of budgets; None if too few minima are left."""
    best = []
    for group, some in zip(groups, drawn, strict=True):
        if len(np.unique(some.parameters)) >= LEAST_SIZES:
            one = _parabola(some)
            if one.minimum is not None and group.parameters.min() <= one.minimum <= group.parameters.max():
                best.append((one.flops, one.minimum))
    if len(best) < 2:
        return None
    flops, sizes = np.array(best).T
    return line(flops, sizes)


_COMPUTES = 1500
"""Computes of the envelope, as in the paper."""


@dataclass(frozen=True)
class TrainingCurve:
    """Losses of one run by the tokens seen."""

    parameters: float
    tokens: Floats
    """Increasing."""
    loss: Floats
    counted: Floats | None = None
    """Training FLOPs so far as the run counts them, where they contradict 6·N·D."""

    @property
    def flops(self) -> Floats:
        """Training FLOPs so far, 6·N·D or as counted."""
        if self.counted is not None:
            return self.counted
        return np.asarray(FLOPS_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens)


@dataclass(frozen=True)
class Envelope:
    """The lowest loss at each compute, the size that has it, and the power laws through the sizes that count."""

    flops: Floats
    loss: Floats
    parameters: Floats
    counts: tuple[bool, ...]
    """Whether each compute counts for the power laws."""
    optima: Optima


def envelope(curves: Sequence[TrainingCurve], draws: int = 200, seed: int = 0) -> Envelope:
    """Fit approach 1 to training curves.

    Raises `UsageError` for curves that are no curves, fewer than three sizes, or an envelope of the ends alone.
    """
    for one in curves:
        _check(one)
    sizes = np.array([one.parameters for one in curves])
    if len(np.unique(sizes)) < 3:
        raise UsageError(f"the curves are of {len(np.unique(sizes))} sizes; an envelope needs three or more")
    flops = np.geomspace(min(one.flops[0] for one in curves), max(one.flops[-1] for one in curves), _COMPUTES)
    losses = np.array([_at(one, flops) for one in curves])
    lowest, best, counted = _envelope(losses, sizes)
    if len(np.unique(best[counted])) < 2:
        raise UsageError("the lowest losses are of the smallest and the largest size alone; add sizes between them")
    chance = np.random.default_rng(seed)
    picks = (chance.integers(0, len(curves), len(curves)) for _ in range(draws))
    drawn = [_line(losses[pick], sizes[pick], flops) for pick in picks]
    warning = (
        f"{counted.mean():.0%} of the computes count; at the others the best run is of the smallest or largest size."
    )
    best_sizes = optima(flops[counted], best[counted], drawn, [warning], _accounting(curves))
    return Envelope(flops, lowest, best, tuple(map(bool, counted)), best_sizes)


def _accounting(curves: Sequence[TrainingCurve]) -> Accounting:
    """Return how the points of all curves count FLOPs."""
    sizes = np.concatenate([np.full(len(one.tokens), one.parameters) for one in curves])
    tokens, flops = (np.concatenate([getattr(one, name) for one in curves]) for name in ("tokens", "flops"))
    return accounting(planned_points(parameters=sizes, tokens=tokens, counted_flops=flops))


def read_curves(path: Path, columns: str | None = None) -> list[TrainingCurve]:
    """Read curves from a CSV file; rows of one `run`, or else of one size, are a curve.

    Raises `UsageError` if the file cannot be read, lacks a column, or has an impossible number.
    """
    table = points_table(path)
    points = read_points(table, named=columns)
    counts = not accounting(points).plain
    named = run_names(table) or list(map(str, points.parameters))
    curves = []
    for name in dict.fromkeys(named):
        rows = points.where(np.array([one == name for one in named]))
        rows = rows.where(np.argsort(rows.tokens, kind="stable"))
        if len(np.unique(rows.parameters)) > 1:
            raise UsageError(f"{path}: run {name} has several sizes; give each run a name of its own")
        counted = rows.counted_flops if counts else None
        curves.append(TrainingCurve(float(rows.parameters[0]), rows.tokens, rows.loss, counted))
    return curves


def _at(curve: TrainingCurve, flops: Floats) -> Floats:
    """Return the loss of a run at each compute, infinite where it has none."""
    found = np.exp(np.interp(np.log(flops), np.log(curve.flops), np.log(curve.loss)))
    within = (curve.flops[0] * (1 - 1e-9) <= flops) & (flops <= curve.flops[-1] * (1 + 1e-9))
    return np.where(within, found, np.inf)


def _envelope(losses: Floats, sizes: Floats) -> tuple[Floats, Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the lowest loss at each compute, its size, and whether the compute counts."""
    best = sizes[np.argmin(losses, axis=0)]
    there = np.isfinite(losses)
    counts = (best > sizes.min()) & (best < sizes.max()) & (there.sum(axis=0) >= 2)
    return losses.min(axis=0), best, np.asarray(counts)


def _line(losses: Floats, sizes: Floats, flops: Floats) -> Line | None:
    """Return the line of one draw of runs; None if the ends alone have the lowest losses."""
    _, best, counted = _envelope(losses, sizes)
    return line(flops[counted], best[counted]) if len(np.unique(best[counted])) >= 2 else None


def _check(curve: TrainingCurve) -> None:
    name = f"the curve of {format_count(curve.parameters)} parameters"
    if len(curve.tokens) != len(curve.loss) or len(curve.tokens) < 2:
        raise UsageError(f"{name} needs two or more tokens, and a loss for each")
    values = np.concatenate([[curve.parameters], curve.tokens, curve.loss])
    if not np.all((values > 0) & np.isfinite(values)):
        raise UsageError(f"{name} has a size, tokens or a loss that is not positive")
    if np.any(np.diff(curve.tokens) <= 0):
        raise UsageError(f"the tokens of {name} do not increase; sort it, and leave copies out")
