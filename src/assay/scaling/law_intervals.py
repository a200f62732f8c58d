"""Intervals of a fitted law: by the bootstrap, by profile likelihood, and beyond the fitted compute.

Huber's objective is no likelihood, so nothing follows from its curvature. Points are drawn with replacement, and the
law is fitted anew. The 2.5 % and 97.5 % quantiles of what follows from these laws are an interval. That of a single new
loss also has the residuals of the fit, drawn at random.

The law itself is taken as true. Far outside of the fitted points this is too narrow, and forecasts widen it. A
fit to Chinchilla's points below 1e20 FLOPs has 70 % of the other points in these intervals, and not 95 %.

Huber's objective becomes a likelihood with a density of the residuals,
p(r) ∝ exp(−ρ(r)/τ²), with ρ the Huber loss and τ free. It is from Huber 1964, Annals of Mathematical Statistics 35.
`laplace` has δ = 0.001, as the fit: tails are exponential, and its most likely law is the fitted one. `normal` has an
infinite δ: residuals are normal, and its most likely law is that of least squares.

One constant is fixed at each of several values, and the others are fitted anew. The interval has the values at which
twice the log-likelihood is at most 3.84 below its maximum (Wilks 1938). An end that is not reached is open: the points
do not identify the constant. If the residuals do not follow the density, the interval is too narrow or too wide. So
the log-likelihoods of both densities are given. A likelihood takes points as independent. Those of one trunk are not,
so their profile intervals are too narrow, and those of the bootstrap count.

A bootstrap takes the law as true, so its intervals are too narrow where the law itself bends. What it cannot know is
measured, by forecasts from rolling origins (Williams & Goodman 1971, Journal of the American Statistical Association
66). The range of log C is divided evenly. At each origin the law is fitted to the points below, and predicts those
above. The error of log L at a distance d = log C − log C_fitted is compared with √(q² + (κ·d)²). The scatter q is the
95 % quantile of the absolute residuals of that fit.

The growth κ is the least number with which 95 % of the errors are within. Each origin weighs alike.

Origins have fewer points than the fit, so their errors also have its uncertainty of constants. Intervals are therefore
somewhat too wide where the law is true. A bend that begins beyond the fitted points shows in no hold-out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erf
from scipy.stats import chi2

from assay.scaling.descent import DELTA, DescentProblem, descend, objectives
from assay.scaling.fitting import FitResult, finish, fit
from assay.scaling.laws.base import Form, Law, log_losses
from assay.scaling.points import Floats, Points

_LOW, _HIGH = 0.025, 0.975
LEAST_DRAWS = 20
"""Fewer draws have no quantile of 2.5 %."""

Interval = tuple[float, float]


def interval(laws: Sequence[Law], figure: Callable[[Law], float]) -> Interval:
    """Return the interval of a figure that follows from a law."""
    return quantiles([figure(law) for law in laws])


def quantiles(figures: Sequence[float]) -> Interval:
    """Return the interval of a figure from its draws."""
    low, high = np.quantile(figures, (_LOW, _HIGH))
    return float(low), float(high)


def of_losses(found: FitResult, laws: Sequence[Law], points: Points, seed: int = 0) -> tuple[Floats, Floats]:
    """Return both ends of the interval of each point's loss, by the law and the residuals of its fit."""
    chance = np.random.default_rng(seed)
    logs = log_losses(laws, points)
    count, constants = len(found.points), len(found.law.values)
    # The constants took part of the scatter with them.
    residuals = found.residuals * np.sqrt(count / max(1, count - constants))
    noise = chance.choice(residuals, size=logs.shape)
    # A draw far off may have a loss beyond the largest number, but its logarithm is a number.
    low, high = np.exp(np.quantile(logs + noise, (_LOW, _HIGH), axis=0))
    return low, high


Likelihood = Literal["laplace", "normal"]
DELTAS: dict[Likelihood, float] = {"laplace": DELTA, "normal": np.inf}
"""Residual from which each density falls exponentially."""
_PROFILE_WITHIN = float(chi2.ppf(0.95, 1))
_FURTHEST, _STEPS = 4.0, 33
"""Half widths of the bootstrap's interval to which a constant is followed, and values on each side."""


@dataclass(frozen=True)
class Profile:
    """Profile intervals under one likelihood, whose open ends are infinite or NaN in print."""

    likelihood: Likelihood
    intervals: dict[str, tuple[float | None, float | None]]
    """95 % interval of each constant; None is an open end."""
    log_likelihoods: dict[Likelihood, float]
    """Maximum of each density's log-likelihood."""

    @property
    def open_ended(self) -> tuple[str, ...]:
        """Constants whose interval has an open end."""
        return tuple(name for name, ends in self.intervals.items() if None in ends)


def profile(found: FitResult, draws: tuple[Law, ...], likelihood: Likelihood) -> Profile:
    """Return the profile interval of each constant; the bootstrap's draws say where to look."""
    best = {name: most_likely(found, delta) for name, delta in DELTAS.items()}
    problem = DescentProblem(found.law.form, found.points, DELTAS[likelihood])
    values, highest = best[likelihood]
    spread = np.cov(np.array([law.numbers for law in draws]).T)
    ends = {
        constant.symbol: _ends(problem, values, highest, spread, place)
        for place, constant in enumerate(found.law.form.constants)
    }
    printed = {
        constant.symbol: tuple(None if end is None else constant.printed(end) for end in ends[constant.symbol])
        for constant in found.law.form.constants
    }
    return Profile(
        likelihood,
        {name: (low, high) for name, (low, high) in printed.items()},
        {name: highest for name, (_, highest) in best.items()},
    )


def most_likely(found: FitResult, delta: float) -> tuple[Floats, float]:
    """Return the values of the highest likelihood near a fit, and its logarithm."""
    problem = DescentProblem(found.law.form, found.points, delta)
    values, lowest = finish(problem, descend(problem, found.law.values[None])[0])
    return values, log_likelihood(lowest, len(found.points), delta)


def log_likelihood_of(law: Law, points: Points, likelihood: Likelihood) -> float:
    """Return the log-likelihood of a law at points, with the scale that makes it highest."""
    delta = DELTAS[likelihood]
    return log_likelihood(
        float(objectives(DescentProblem(law.form, points, delta), law.values[None])[0]), len(points), delta
    )


def log_likelihood(objective: float, count: int, delta: float) -> float:
    """Return the log-likelihood of a sum of Huber losses of so many residuals, with its most likely scale τ."""
    if np.isinf(delta):
        return float(-0.5 * count * (np.log(2 * np.pi * 2 * objective / count) + 1))

    def negative(log_scale: float) -> float:
        scale = np.exp(log_scale)
        tail = 2 * scale**2 / delta * np.exp(-(delta**2) / (2 * scale**2))
        normal = np.sqrt(2 * np.pi) * scale * erf(delta / (np.sqrt(2) * scale))
        return float(count * np.log(tail + normal) + objective / scale**2)

    # For exponential tails alone τ² is the mean of ρ; the search is wide around it.
    middle = 0.5 * np.log(max(objective, 1e-300) / count)
    return -float(minimize_scalar(negative, bounds=(middle - 5, middle + 5), method="bounded").fun)


def _ends(
    problem: DescentProblem, values: Floats, highest: float, spread: Floats, place: int
) -> tuple[float | None, float | None]:
    """Return the values of one constant between which the likelihood is high enough."""
    spread = np.atleast_2d(spread)
    half = 2 * np.sqrt(spread[place, place])
    offsets = np.linspace(0, _FURTHEST * half, _STEPS)[1:]
    along = spread[:, place] / spread[place, place]
    fixed = DescentProblem(problem.form, problem.points, problem.delta, place)
    low, high = (_crossing(fixed, values, highest, sign * offsets, along) for sign in (-1.0, 1.0))
    return (None if low is None else float(values[place] + low)), (
        None if high is None else float(values[place] + high)
    )


def _crossing(problem: DescentProblem, values: Floats, highest: float, offsets: Floats, along: Floats) -> float | None:
    """Return the offset at which the likelihood leaves the interval; None if it does not."""
    reached = descend(problem, values + offsets[:, None] * along)
    count = len(problem.points)
    each = (log_likelihood(float(one), count, problem.delta) for one in objectives(problem, reached))
    excess = np.array([0.0, *(2 * (highest - one) for one in each)])
    outside = np.flatnonzero(excess > _PROFILE_WITHIN)
    if not len(outside):
        return None
    last, places = int(outside[0]), np.array([0.0, *offsets])
    # The excess grows like a square, so that its root is nearly linear.
    roots = np.sqrt(np.maximum(excess[last - 1 : last + 1], 0))
    return float(np.interp(np.sqrt(_PROFILE_WITHIN), roots, places[last - 1 : last + 1]))


_EXTRAPOLATION_WITHIN = 0.95
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
    logs, sizes = points.log(form.extent), extents(points, form)
    distances, excesses, weights = [], [], []
    for log_origin in np.linspace(logs.min(), logs.max(), _ORIGINS + 2)[1:-1]:
        origin = gap(sizes, float(np.exp(log_origin)))
        small, large = points.where(sizes < origin), points.where(sizes >= origin)
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


_ONE_BUDGET = 1.01
"""Largest ratio of two extents that may be one budget, written with rounding."""


def gap(sizes: Floats, cut: float) -> float:
    """Return the cut, moved down to a gap where it would divide points of one budget; unmoved if there is no gap."""
    known = np.sort(sizes)
    first = int(np.searchsorted(known, cut))
    while 0 < first < len(known) and known[first] <= _ONE_BUDGET * known[first - 1]:
        first -= 1
    return float(known[first]) if 0 < first < np.searchsorted(known, cut) else cut


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
    return float(
        np.quantile(np.abs(found.residuals), _EXTRAPOLATION_WITHIN) * np.sqrt(count / max(1, count - constants))
    )


def _quantile(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, _EXTRAPOLATION_WITHIN)])


def widen_intervals(
    ends: tuple[Floats, Floats], found: FitResult, points: Points, beyond: Extrapolation
) -> tuple[Floats, Floats]:
    """Return intervals of losses that are at least as wide as errors grow and beyond the fitted compute."""
    center, half = found.law.losses(points), beyond.half_widths(extents(points, found.law.form))
    with np.errstate(over="ignore"):  # an error that grows beyond all numbers leaves the upper end open
        return np.minimum(ends[0], center * np.exp(-half)), np.maximum(ends[1], center * np.exp(half))
