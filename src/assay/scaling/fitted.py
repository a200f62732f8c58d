"""A fitted law: its intervals, its predictions, and its test on points that a stated rule leaves out of the fit.

The outlier rule is applied before every split: the points with the highest losses are left out. Runs that have hardly
trained have them. The fit of all points is kept, to be shown beside it.

All points that are left are fitted. The test needs a law that has not seen the larger runs. So the law is fitted once
more, to the four fifths of the points with the least compute, and predicts the others. If a cut is given, the smaller
points are the fit itself.
"""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from assay.errors import UsageError
from assay.scaling.descent import DescentProblem
from assay.scaling.fitting import FitResult, bootstrap, check_falling, fit, mean_slopes, unidentified_constants
from assay.scaling.law_intervals import (
    Extrapolation,
    Interval,
    Likelihood,
    Profile,
    extents,
    extrapolation,
    gap,
    of_losses,
    outside,
    quantiles,
    widen_intervals,
)
from assay.scaling.law_intervals import profile as profiled
from assay.scaling.laws import Form
from assay.scaling.laws.base import Law, log_slopes
from assay.scaling.points import PLAIN, Accounting, Floats, Points, accounting, planned_points
from assay.scaling.shared import repeats_sizes, shared_errors

IDENTIFIED = 2.0
"""Largest ratio of the ends of an interval for which the points identify a constant."""
RIDGE = 0.95
"""Correlation of draws from which two constants lie on a ridge."""
_NO_EFFECT = 1e-3
"""Change of log L by the value of a constant below which no loss depends on it."""
MARKED, REFUSED = 100.0, 10_000.0
"""Multiples of the fitted extent from which a prediction is marked, and is refused."""


@dataclass(frozen=True)
class HeldOut:
    """Points beyond those of a fit, and how the law of the smaller ones predicts them."""

    count: int
    below: float
    """Points with less were fitted: in FLOPs, or in the one quantity of a law of N or D alone."""
    fitted: int
    """Points of the fit that predicts."""
    mean_error: float
    """Mean of the absolute relative errors of predicted losses."""
    covered: float
    """Share of the losses within their 95 % intervals."""
    covered_if_law_is_true: float
    """Share of the losses within their intervals by the bootstrap alone."""
    half_width: float
    """Mean half width of the intervals, relative to the loss."""


@dataclass(frozen=True)
class Prediction:
    """Predicted losses with both ends of their 95 % intervals, one for each point that was asked for."""

    law: Law
    points: Points
    """Points of the question, whose loss is not known."""
    loss: Floats
    low: Floats
    high: Floats
    """Ends of the intervals; NaN for published constants, which have no points."""
    beyond: Floats
    """Factor by which each is outside of the fitted points; 1 within them, and NaN where no range is known."""
    furthest: tuple[str, ...] = ()
    """Column in which each is furthest outside."""
    source: str | None = None
    """Source of published constants; None for a law that was fitted."""
    unidentified: tuple[str, ...] = ()
    """Constants that the fitted points do not identify."""
    rising: tuple[str, ...] = ()
    """Columns with which the fitted law rises."""
    fitted: int | None = None
    """Points of the fit; None for published constants."""
    accounting: Accounting = PLAIN
    """Ratio of the FLOPs that the fitted points count to 6·N·D."""
    law_taken_as_true: bool = False
    """Whether the points were too few for hold-outs, so that intervals do not grow beyond them."""

    @property
    def marked(self) -> list[bool]:
        """Whether each is more than 100 times beyond the fitted points."""
        return [bool(one > MARKED) for one in self.beyond]


@dataclass(frozen=True)
class FittedLaw:
    """A fitted law with its intervals."""

    fit: FitResult
    draws: tuple[Law, ...]
    dropped: int
    """Points with the highest losses that were left out."""
    held_out: HeldOut | None = None
    extrapolation: Extrapolation | None = None
    """Growth of errors beyond the fitted points; None if they are too few for hold-outs among them."""
    undropped: FitResult | None = None
    """Fit of all points, where some were left out."""
    profile: Profile | None = None
    """Profile intervals, where a likelihood was stated."""
    by_byte: str = ""
    """Heading of losses that are per byte of text, of which the law is then; empty: they are not, or it is not said."""

    @property
    def law(self) -> Law:
        """The law with its fitted constants."""
        return self.fit.law

    @property
    def accounting(self) -> Accounting:
        """Ratio of the FLOPs that the points count to 6·N·D."""
        return accounting(self.fit.points)

    @property
    def intervals(self) -> dict[str, Interval]:
        """95 % interval of each constant, by the bootstrap."""
        found = {}
        for place, constant in enumerate(self.law.form.constants):
            low, high = quantiles([law.numbers[place] for law in self.draws])
            found[constant.symbol] = (constant.printed(low), constant.printed(high))
        return found

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Constants that the points do not identify.

        Each has an interval whose ends differ by more than a factor of two, or in sign, or reach a limit of the form.
        This holds for the interval of the bootstrap, or for one from the curvature of least squares. A profile with
        an open end names a constant as well. If one that decides what the others mean is named, all are.
        """
        return tuple(self.law.printed) if self.deciding else self._wide

    @property
    def deciding(self) -> tuple[str, ...]:
        """Constants that the points do not identify, and that decide what the others mean."""
        wide = self._wide
        return tuple(one.symbol for one in self.law.form.constants if one.decides and one.symbol in wide)

    @property
    def at_limit(self) -> dict[str, float]:
        """Limits of the form at which fitted constants lie, by their names; there no loss depends on their values."""
        slopes = log_slopes(self.law, self.fit.points)
        limits = {
            one.symbol: one.limit(self.law.printed[one.symbol])
            for one, slope in zip(self.law.form.constants, slopes, strict=True)
            if slope < _NO_EFFECT
        }
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def rising(self) -> tuple[str, ...]:
        """Columns with which the fitted law rises, on average over its points."""
        slopes = zip(self.law.form.needs, mean_slopes(self.fit), strict=True)
        return tuple(name for name, slope in slopes if slope > 0)

    @property
    def hides_shared_errors(self) -> bool:
        """Whether runs share sizes that are too few to show errors which they have in common."""
        problem = DescentProblem(self.law.form, self.fit.points, self.fit.delta)
        return repeats_sizes(problem) and shared_errors(problem, self.law.values) is None

    @property
    def supports_optimum(self) -> bool:
        """Whether the best size for the largest compute, if the form has one, is near the sizes of the points."""
        points, form = self.fit.points, self.law.form
        best = form.optimum(self.law.values, float(points.flops.max()))
        if best is None:
            return False
        where = planned_points(parameters=best[0], tokens=best[1])
        return float(outside(where, points, form)[0].max()) <= MARKED

    @property
    def _wide(self) -> tuple[str, ...]:
        """Constants whose own interval is wide, open, or at a limit."""
        flat = unidentified_constants(self.fit, IDENTIFIED)
        constants = {one.symbol: one for one in self.law.form.constants}
        open_ended = () if self.profile is None else self.profile.open_ended
        return tuple(
            name
            for name, ends in self.intervals.items()
            if name in flat or name in open_ended or not _is_narrow(ends) or constants[name].reaches_limit(ends)
        )

    @property
    def together(self) -> tuple[tuple[str, str], ...]:
        """Pairs of constants whose draws are so correlated that each alone says little."""
        draws, names = np.array([law.numbers for law in self.draws]), tuple(self.law.printed)
        if len(draws) <= len(names):
            return ()
        with np.errstate(invalid="ignore"):  # draws that are all equal have no correlation
            related = np.abs(np.corrcoef(draws.T))
        return tuple(
            (names[one], names[other])
            for one, other in combinations(range(len(names)), 2)
            if related[one, other] > RIDGE
        )

    def intervals_of(self, points: Points) -> tuple[Floats, Floats]:
        """Return both ends of the 95 % interval of a new loss at each point."""
        ends = of_losses(self.fit, self.draws, points)
        return ends if self.extrapolation is None else widen_intervals(ends, self.fit, points, self.extrapolation)

    def predict(self, points: Points, far: bool = False) -> Prediction:
        """Return the loss at each point, with its interval; `planned_points` makes points without a loss.

        Raises `UsageError` beyond 10,000 times the fitted points unless `far`, or if a column is missing.
        """
        beyond, furthest = outside(points, self.fit.points, self.law.form)
        check_reach(beyond, far)
        return Prediction(
            *(self.law, points, self.law.losses(points), *self.intervals_of(points), beyond, furthest),
            unidentified=self.unidentified,
            rising=self.rising,
            fitted=len(self.fit.points),
            accounting=self.accounting,
            law_taken_as_true=self.extrapolation is None,
        )


def check_reach(beyond: Floats, far: bool) -> None:
    """Raise `UsageError` for a question more than 10,000 times outside of the fitted points, unless `far`."""
    if not far and float(np.nanmax(beyond, initial=1.0)) > REFUSED:
        raise UsageError(
            f"the question is {np.nanmax(beyond):,.0f} times beyond the fitted points, and more than {REFUSED:,.0f} "
            "times says nothing; ask for less, or add --far to see a number that nothing supports"
        )


def _is_narrow(ends: Interval) -> bool:
    low, high = sorted(map(abs, ends))
    return ends[0] * ends[1] > 0 and high <= IDENTIFIED * low


def with_held_out(found: FittedLaw, points: Points, below: float) -> FittedLaw:
    """Return the law with its test on the points whose extent is so large or larger."""
    points = points.where(extents(points, found.law.form) >= below)
    return replace(found, held_out=held_out(found, points, below)) if len(points) else found


def held_out(found: FittedLaw, points: Points, below: float) -> HeldOut:
    """Return how a law that was fitted to other points predicts these."""
    errors = np.abs(found.law.losses(points) / points.loss - 1)
    ends = found.intervals_of(points)
    by_bootstrap = of_losses(found.fit, found.draws, points)
    half = float(np.mean((ends[1] - ends[0]) / 2 / points.loss))
    return HeldOut(
        len(points),
        below,
        len(found.fit.points),
        mean_error=float(errors.mean()),
        covered=_covered(ends, points),
        covered_if_law_is_true=_covered(by_bootstrap, points),
        half_width=half,
    )


def _covered(ends: tuple[Floats, Floats], points: Points) -> float:
    return float(np.mean((ends[0] <= points.loss) & (points.loss <= ends[1])))


_FITTED_SHARE = 0.8
"""Share of the points below the cut of the test, if none is given."""


def fit_law(
    points: Points,
    form: Form,
    *,
    drop: int = 0,
    below: float | None = None,
    hold_out: bool = True,
    profile: Likelihood | None = None,
    draws: int,
    seed: int = 0,
) -> FittedLaw:
    """Fit a law to points and test it on the larger ones.

    Raises `UsageError` if too few points are left, or if their losses do not fall.
    """
    points = points.in_order()
    kept = points.without_highest(drop) if drop else points
    sizes = extents(kept, form)
    chosen = kept if below is None else kept.where(sizes < below)
    if len(chosen) < form.least_points or not _several(chosen, form):
        raise UsageError(
            f"{_counted(len(chosen))} left to fit; the law {form.name} needs at least {form.least_points}, "
            "of several sizes"
        )
    best = fit(chosen, form)
    check_falling(best)
    found = _with_intervals(best, draws, seed)
    found = replace(
        found,
        dropped=drop,
        undropped=fit(points, form) if drop else None,
        profile=None if profile is None else profiled(found.fit, found.draws, profile),
    )
    if below is not None:
        return with_held_out(found, kept, below)
    return _with_test(found, draws, seed) if hold_out else found


def _with_test(found: FittedLaw, draws: int, seed: int) -> FittedLaw:
    """Return the law with the test of a fit to the smaller of its points, if these can determine one."""
    points, form = found.fit.points, found.law.form
    sizes = extents(points, form)
    cut = gap(sizes, _cut(sizes))
    small, large = points.where(sizes < cut), points.where(sizes >= cut)
    if len(small) < form.least_points or not _several(small, form):
        return found
    return replace(found, held_out=held_out(_with_intervals(fit(small, form), draws, seed), large, cut))


def _cut(sizes: Floats) -> float:
    """Return the extent below which four fifths of the points lie."""
    return float(np.sort(sizes)[int(_FITTED_SHARE * len(sizes))])


def _with_intervals(found: FitResult, draws: int, seed: int) -> FittedLaw:
    return FittedLaw(found, tuple(bootstrap(found, draws, seed)), 0, extrapolation=extrapolation(found))


def _counted(points: int) -> str:
    return "1 point is" if points == 1 else f"{points} points are"


def _several(points: Points, form: Form) -> bool:
    """Return whether each quantity of a law has more than one value."""
    return all(len(np.unique(getattr(points, name))) > 1 for name in form.needs)
