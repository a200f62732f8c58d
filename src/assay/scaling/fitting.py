"""Fit a law to points, and fit it anew to points drawn with replacement.

The fit minimizes the sum of Huber losses of the residuals of log L, with δ = 0.001 (Hoffmann et al. 2022). A form gives
its starts. The best of them descend together (`descent`): all by a few steps, then some to the end. L-BFGS finishes one
of them, by at most 300 steps.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from assay.scaling.descent import DELTA, Problem, descend, objectives
from assay.scaling.laws.base import Form, Law
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.points import Floats, Points

_STARTS = 60
"""Starts with the lowest objective from which the fit descends."""
_FEW_STEPS, _FINALISTS = 40, 8
"""All starts descend by a few steps, and the best of them to the end."""
_SCALE = 1e3
"""The objective is multiplied, because it is so small that L-BFGS would stop at its absolute tolerances."""


@dataclass(frozen=True)
class Fit:
    """A fitted law, its objective, and the points that it was fitted to."""

    law: Law
    objective: float
    points: Points
    delta: float = DELTA
    """Residual of log L from which the Huber loss is linear."""

    @property
    def residuals(self) -> Floats:
        """Logarithm of each loss over the law's."""
        return np.log(self.points.loss) - np.log(self.law.losses(self.points))


def fit(points: Points, form: Form = HOFFMANN, delta: float = DELTA) -> Fit:
    """Fit a law to points: the lowest objective of several descents."""
    problem = Problem(form, points, delta)
    every = form.starts(points)
    starts = every[np.argsort(objectives(problem, every), kind="stable")[:_STARTS]]
    near = descend(problem, starts, most_steps=_FEW_STEPS)
    reached = descend(problem, near[np.argsort(objectives(problem, near), kind="stable")[:_FINALISTS]])
    values, lowest = finish(problem, reached[int(np.argmin(objectives(problem, reached)))])
    return Fit(law_of(form, values), lowest, points, delta)


def bootstrap(found: Fit, draws: int, seed: int = 0) -> list[Law]:
    """Return laws that are fitted to points drawn with replacement; each begins from the fitted law."""
    chance, count, form = np.random.default_rng(seed), len(found.points), found.law.form
    times_drawn = chance.multinomial(count, np.full(count, 1 / count), size=draws).astype(float)
    starts = np.repeat(found.law.values[None], draws, axis=0)
    problem = Problem(form, found.points, found.delta)
    return [law_of(form, values) for values in descend(problem, starts, times_drawn)]


def objective(law: Law, points: Points) -> float:
    """Return the sum of Huber losses of the residuals of log L."""
    return float(objectives(Problem(law.form, points), law.values[None])[0])


def law_of(form: Form, values: Floats) -> Law:
    """Return the law of the values of a fit."""
    return Law(form, tuple(map(float, values)))


def finish(problem: Problem, start: Floats) -> tuple[Floats, float]:
    """Return the values that L-BFGS reaches from a start, and their objective."""
    options = {"maxiter": 300, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(_scaled, start, args=(problem,), jac=True, method="L-BFGS-B", options=options)
    return found.x, float(found.fun) / _SCALE


def _scaled(values: Floats, problem: Problem) -> tuple[float, Floats]:
    """Return the objective and its gradient, times a constant."""
    residuals, slopes = (one[0] for one in problem.residuals(values[None]))
    gradient = np.clip(residuals, -problem.delta, problem.delta) @ slopes
    return _SCALE * float(problem.huber(residuals).sum()), _SCALE * gradient
