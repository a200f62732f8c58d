"""Fit a law to points, and fit it anew to points drawn with replacement.

The fit minimizes the sum of Huber losses of the residuals of log L, with δ = 0.001 (Hoffmann et al. 2022). A form gives
its starts. The best of them descend together (`descent`): all by a few steps, then some to the end. L-BFGS finishes one
of them, by at most 300 steps.

Each fit of a bootstrap descends from the law that is fitted to all points. In a direction in which the losses do not
change, it would stay there, and the interval would have no width. Then it descends twice more. One descent is from one
of the form's own starts, so that a term that vanished may come back. The other is from values that are moved in flat
directions. Such a fit counts if its objective is as low.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from assay.scaling.curvature import spreads
from assay.scaling.descent import DELTA, DescentProblem, Drawn, descend, objectives, whole
from assay.scaling.laws.base import Form, Law
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.points import Floats, Points
from assay.scaling.shared import shared_errors

_STARTS = 60
"""Starts with the lowest objective from which the fit descends."""
_FEW_STEPS, _FINALISTS = 40, 8
"""All starts descend by a few steps, and the best of them to the end."""
_FLAT, _FURTHEST = 0.35, 2.0
"""Standard error of a value from which a direction is flat, and by how much a start is moved at most.

The first is a factor of four between the ends of a constant's interval."""
_AS_LOW = 1 + 1e-6
"""Ratio of objectives of equal fits."""
_SCALE = 1e3
"""The objective is multiplied, because it is so small that L-BFGS would stop at its absolute tolerances."""


@dataclass(frozen=True)
class FitResult:
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


def fit(points: Points, form: Form = HOFFMANN, delta: float = DELTA) -> FitResult:
    """Fit a law to points: the lowest objective of several descents."""
    problem = DescentProblem(form, points, delta)
    near = _near(problem)
    reached = descend(problem, near)
    values, lowest = finish(problem, reached[int(np.argmin(objectives(problem, reached)))])
    return FitResult(law_of(form, values), lowest, points, delta)


def bootstrap(found: FitResult, draws: int, seed: int = 0) -> list[Law]:
    """Return laws that are fitted to points drawn with replacement; each begins from the fitted law.

    Errors that runs of one size share are drawn as well, and are added to the losses of these runs.
    """
    chance, count, form = np.random.default_rng(seed), len(found.points), found.law.form
    problem = DescentProblem(form, found.points, found.delta)
    drawn = whole(problem, draws)
    drawn = replace(drawn, weights=chance.multinomial(count, np.full(count, 1 / count), size=draws).astype(float))
    if (shared := shared_errors(problem, found.law.values)) is not None and shared.shown:
        drawn = replace(drawn, shifts=shared.drawn(draws, chance))
    values = descend(problem, np.repeat(found.law.values[None], draws, axis=0), drawn)
    flat = _flat(problem, found.law.values)
    if flat.shape[1]:
        others = chance.choice(_near(problem), size=draws)
        values = _better(problem, values, others, drawn)
        moved = values + chance.standard_normal((draws, flat.shape[1])) @ flat.T
        values = _better(problem, values, moved, drawn)
    return [law_of(form, each) for each in values]


def _near(problem: DescentProblem) -> Floats:
    """Return the best of the form's starts, after a few steps of each."""
    every = problem.form.starts(problem.points)
    starts = every[np.argsort(objectives(problem, every), kind="stable")[:_STARTS]]
    near = descend(problem, starts, most_steps=_FEW_STEPS)
    return np.asarray(near[np.argsort(objectives(problem, near), kind="stable")[:_FINALISTS]])


def _better(problem: DescentProblem, values: Floats, starts: Floats, drawn: Drawn) -> Floats:
    """Return for each fit the values reached from a start, if their objective is as low."""
    found = descend(problem, starts, drawn)
    before, after = (objectives(problem, each, drawn) for each in (values, found))
    return np.where((after <= _AS_LOW * before)[:, None], found, values)


def _flat(problem: DescentProblem, values: Floats) -> Floats:
    """Return the directions `[k, flat]` in which losses hardly change, one standard error long, but not too far."""
    factor = spreads(problem, values)
    length = np.abs(factor).max(axis=0)
    flat = length > _FLAT
    return np.asarray(factor[:, flat] * np.minimum(1.0, _FURTHEST / length[flat]))


def objective(law: Law, points: Points) -> float:
    """Return the sum of Huber losses of the residuals of log L."""
    return float(objectives(DescentProblem(law.form, points), law.values[None])[0])


def law_of(form: Form, values: Floats) -> Law:
    """Return the law of the values of a fit."""
    return Law(form, tuple(map(float, values)))


def finish(problem: DescentProblem, start: Floats) -> tuple[Floats, float]:
    """Return the values that L-BFGS reaches from a start, and their objective."""
    options = {"maxiter": 300, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(_scaled, start, args=(problem,), jac=True, method="L-BFGS-B", options=options)
    return found.x, float(found.fun) / _SCALE


def _scaled(values: Floats, problem: DescentProblem) -> tuple[float, Floats]:
    """Return the objective and its gradient, times a constant."""
    residuals, slopes = (one[0] for one in problem.residuals(values[None]))
    gradient = np.clip(residuals, -problem.delta, problem.delta) @ slopes
    return _SCALE * float(problem.huber(residuals).sum()), _SCALE * gradient
