"""Errors of a law beyond the compute that it was fitted to, from hold-outs within the fitted points.

A bootstrap takes the law as true, so its intervals are too narrow where the law itself bends. What it cannot know is
measured, by forecasts from rolling origins (Williams & Goodman 1971, Journal of the American Statistical Association
66). The range of log C is divided evenly. At each origin the law is fitted to the points below, and predicts those
above. The error of log L at a distance d = log C − log C_fitted is compared with √(q² + (κ·d)²). The scatter q is the
95 % quantile of the absolute residuals of that fit.

The growth κ is the least number with which 95 % of the errors are within. Each origin weighs alike.

Origins have fewer points than the fit, so their errors also have its uncertainty of constants. Intervals are therefore
somewhat too wide where the law is true. A bend that begins beyond the fitted points shows in no hold-out.
"""

from dataclasses import dataclass

import numpy as np

from assay.scaling.fitting import FitResult, fit
from assay.scaling.laws.base import Form, log_losses
from assay.scaling.points import Floats, Points

_WITHIN = 0.95
_ORIGINS = 8
"""Origins, evenly over the range of log C."""
_LEAST_A_CONSTANT, _LEAST_SHARE = 4, 0.3
"""An origin needs so many points below it for each constant, and such a share of all points."""
_NEAREST = 0.05
"""Points nearer in log C say nothing of a growth."""


@dataclass(frozen=True)
class Extrapolation:
    """Growth of the errors of log L with the distance from the fitted compute."""

    growth: float
    """κ: error of log L for each unit of log C."""
    scatter: float
    """q: 95 % quantile of the absolute residuals of log L."""
    fitted_flops: float
    """Largest compute of the fit; for a law of N or D alone the largest of these."""
    origins: int
    """Hold-outs within the fitted points."""

    def half_widths(self, flops: Floats) -> Floats:
        """Return the half width of the interval of log L at each compute; zero within the fitted range."""
        distance = _distances(flops, self.fitted_flops)
        return np.where(distance > 0, np.hypot(self.scatter, self.growth * distance), 0.0)


def extrapolation(found: FitResult, least_a_constant: int = _LEAST_A_CONSTANT) -> Extrapolation | None:
    """Measure the growth of a law's errors within its own points; None if no origin has enough points."""
    points, form = found.points, found.law.form
    logs = points.log(form.extent)
    distances, excesses, weights = [], [], []
    for origin in np.linspace(logs.min(), logs.max(), _ORIGINS + 2)[1:-1]:
        small, large = points.where(logs < origin), points.where(logs >= origin)
        if len(small) < max(least_a_constant * len(form.constants), _LEAST_SHARE * len(points)):
            continue
        nested = fit(small, form, found.delta)
        far = _distances(extents(large, form), float(extents(small, form).max()))
        errors = np.log(large.loss) - log_losses([nested.law], large)[0]
        chosen = far > _NEAREST
        distances.append(far[chosen])
        excesses.append(errors[chosen] ** 2 - _scatter(nested) ** 2)
        weights.append(np.full(chosen.sum(), 1 / max(1, chosen.sum())))
    if not any(map(len, distances)):
        return None
    ratios = np.concatenate(excesses) / np.concatenate(distances) ** 2
    growth = np.sqrt(max(0.0, _quantile(ratios, np.concatenate(weights))))
    return Extrapolation(float(growth), _scatter(found), float(extents(points, form).max()), len(distances))


def extents(points: Points, form: Form) -> Floats:
    """Return the quantity in which a law extrapolates: compute, or the one that a law of N or D alone has.

    Raises `UsageError` if the points lack it.
    """
    return np.exp(points.log(form.extent))


def outside(asked: Points, points: Points, form: Form) -> tuple[Floats, tuple[str, ...]]:
    """Return how far each question is outside of points, as a factor of at least 1, and the column that is furthest.

    Columns are those that the law needs, and the one in which it extrapolates. Less than the least counts as well.
    """
    columns = tuple(dict.fromkeys((form.extent, *form.needs)))
    factors = []
    for name in columns:
        there, here = np.exp(points.log(name)), np.exp(asked.log(name))
        factors.append(np.maximum(here / there.max(), there.min() / here))
    furthest = np.argmax(factors, axis=0)
    return np.maximum(1.0, np.max(factors, axis=0)), tuple(columns[place] for place in furthest)


def _distances(flops: Floats, fitted: float) -> Floats:
    return np.maximum(0.0, np.log(flops / fitted))


def _scatter(found: FitResult) -> float:
    """Return the quantile of absolute residuals, for the degrees of freedom that the constants took."""
    count, constants = len(found.points), len(found.law.values)
    return float(np.quantile(np.abs(found.residuals), _WITHIN) * np.sqrt(count / max(1, count - constants)))


def _quantile(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, _WITHIN)])


def widened(
    ends: tuple[Floats, Floats], found: FitResult, points: Points, beyond: Extrapolation
) -> tuple[Floats, Floats]:
    """Return intervals of losses that are at least as wide as errors grow beyond the fitted compute."""
    center, half = found.law.losses(points), beyond.half_widths(extents(points, found.law.form))
    with np.errstate(over="ignore"):  # an error that grows beyond all numbers leaves the upper end open
        return np.minimum(ends[0], center * np.exp(-half)), np.maximum(ends[1], center * np.exp(half))
