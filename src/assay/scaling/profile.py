"""Profile-likelihood intervals of a law's constants, under a stated likelihood of the residuals of log L.

Huber's objective alone is no likelihood, because it has no scale. It becomes one with a density of the residuals,
p(r) ∝ exp(−ρ(r)/τ²), with ρ the Huber loss and τ free. It is from Huber 1964, Annals of Mathematical Statistics 35.
`laplace` has δ = 0.001, as the fit: tails are exponential, and its most likely law is the fitted one. `normal` has an
infinite δ: residuals are normal, and its most likely law is that of least squares.

One constant is fixed at each of several values, and the others are fitted anew. The interval has the values at which
twice the log-likelihood is at most 3.84 below its maximum (Wilks 1938). An end that is not reached is open: the points
do not identify the constant. If the residuals do not follow the density, the interval is too narrow or too wide. So
the log-likelihoods of both densities are given.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erf
from scipy.stats import chi2

from assay.scaling.descent import DELTA, DescentProblem, descend, objectives
from assay.scaling.fitting import FitResult, finish
from assay.scaling.laws.base import Law
from assay.scaling.points import Floats, Points

Likelihood = Literal["laplace", "normal"]
DELTAS: dict[Likelihood, float] = {"laplace": DELTA, "normal": np.inf}
"""Residual from which each density falls exponentially."""
_WITHIN = float(chi2.ppf(0.95, 1))
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
    outside = np.flatnonzero(excess > _WITHIN)
    if not len(outside):
        return None
    last, places = int(outside[0]), np.array([0.0, *offsets])
    # The excess grows like a square, so that its root is nearly linear.
    roots = np.sqrt(np.maximum(excess[last - 1 : last + 1], 0))
    return float(np.interp(np.sqrt(_WITHIN), roots, places[last - 1 : last + 1]))
