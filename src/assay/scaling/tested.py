"""A whole fit: points left out by a stated rule, the law, its intervals, and its test on the larger runs.

The outlier rule is applied before every split: the points with the highest losses are left out. Runs that have hardly
trained have them. The fit of all points is kept, to be shown beside it.

All points that are left are fitted. The test needs a law that has not seen the larger runs. So the law is fitted once
more, to the four fifths of the points with the least compute, and predicts the others. If a cut is given, the smaller
points are the fit itself.
"""

from dataclasses import replace

import numpy as np

from assay.errors import UsageError
from assay.scaling.extrapolation import extents, extrapolation
from assay.scaling.fitted import FittedLaw, held_out, with_held_out
from assay.scaling.fitting import FitResult, bootstrap, fit
from assay.scaling.laws import Form
from assay.scaling.points import Floats, Points
from assay.scaling.profile import Likelihood
from assay.scaling.profile import profile as profiled
from assay.scaling.trend import check_falling

_FITTED_SHARE = 0.8
"""Share of the points below the cut of the test, if none is given."""


def fitted(
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
    cut = _cut(sizes)
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
