"""Fit a law to points, and anew to points drawn with replacement; whether constants can be told, and losses fall.

Points of one trunk, whose runs share their first steps, are drawn together (`Points.drawn_together`).

The fit minimizes the sum of Huber losses of the residuals of log L, with δ = 0.001 (Hoffmann et al. 2022). A form gives
its starts. The best of them descend together: all by a few steps, then some to the end. L-BFGS finishes one
of them, by at most 300 steps.

Each fit of a bootstrap descends from the law that is fitted to all points. In a direction in which the losses do not
change, it would stay there, and the interval would have no width. Then it descends twice more. One descent is from one
of the form's own starts, so that a term that vanished may come back. The other is from values that are moved in flat
directions. Such a fit counts if its objective is as low.

A bootstrap of points that lie on a law to the last digit shows no error at all. Points on a line in log N and log D,
such as D = 20·N, make two columns of slopes nearly equal. Then the errors by the curvature are large.

Losses fall if the fitted law falls with one of its quantities: N, D, C or another column. Losses have a trend if the
law explains them better than one number does. For that the residuals of both are compared, as sums of Huber losses.
Each is divided by its degrees of freedom, because a law with many constants fits any few points.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from assay.errors import UsageError
from assay.scaling.descent import (
    DELTA,
    UNKNOWN,
    DescentProblem,
    Drawn,
    descend,
    objectives,
    spreads,
    whole,
)
from assay.scaling.laws.base import Form, Law, log_losses
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.points import QUANTITIES, Floats, Points
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

    Points of one trunk are drawn together, because they err together. Errors that runs of one size share are drawn as
    well, and are added to the losses of these runs.
    """
    chance, together, form = np.random.default_rng(seed), found.points.drawn_together, found.law.form
    count = int(together.max()) + 1
    problem = DescentProblem(form, found.points, found.delta)
    drawn = whole(problem, draws)
    weights = chance.multinomial(count, np.full(count, 1 / count), size=draws)
    drawn = replace(drawn, weights=weights[:, together].astype(float))
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


_NORMAL = 1.96


def standard_errors(found: FitResult) -> Floats:
    """Return the standard error of each value of a fit, `[k]`."""
    factor = spreads(DescentProblem(found.law.form, found.points), found.law.values)
    return np.asarray(np.minimum(np.sqrt((factor**2).sum(axis=1)), UNKNOWN))


def unidentified_constants(found: FitResult, ratio: float) -> set[str]:
    """Return the constants whose interval by these errors has ends that differ by more than `ratio`, or in sign."""
    named = set()
    for constant, value, error in zip(found.law.form.constants, found.law.numbers, standard_errors(found), strict=True):
        half = _NORMAL * float(error)
        if constant.logarithmic:
            wide = 2 * half > np.log(ratio)
        else:
            wide = abs(value) <= half or (abs(value) + half) / (abs(value) - half) > ratio
        if wide:
            named.add(constant.symbol)
    return named


MOST_UNEXPLAINED = 0.8
"""Share of the scatter of losses that may be left about a law."""
_STEP = 1e-3


def check_falling(found: FitResult) -> None:
    """Raise `UsageError` if the law that is fitted to points does not fall, or explains hardly any of the losses."""
    form = found.law.form
    if not any(slope < 0 for slope in mean_slopes(found)):
        raise UsageError(
            f"the losses do not fall with {_named(form)}: the fitted law {form.name} rises; a scaling law needs losses "
            "that fall"
        )
    left = unexplained_scatter(found)
    if left > MOST_UNEXPLAINED:
        raise UsageError(
            f"the losses do not fall enough with {_named(form)}: {left:.0%} of their scatter is left about the fitted "
            f"law {form.name}; add points that are further apart, or choose another law"
        )


def mean_slopes(found: FitResult) -> list[float]:
    """Return the mean slope of log L by the logarithm of each column that the law needs."""
    points = found.points
    here = log_losses([found.law], points)[0]
    more = (log_losses([found.law], _more(points, name))[0] for name in found.law.form.needs)
    return [float(np.mean(one - here) / _STEP) for one in more]


def unexplained_scatter(found: FitResult) -> float:
    """Return the scatter of log losses about the law over that about their median, by degrees of freedom."""
    problem, logs = DescentProblem(found.law.form, found.points, found.delta), np.log(found.points.loss)
    count, constants = len(logs), len(found.law.values)
    about_law = _mean(problem, found.residuals, count - constants)
    return about_law / max(_mean(problem, logs - np.median(logs), count - 1), 1e-300)


def _mean(problem: DescentProblem, residuals: Floats, freedom: int) -> float:
    return float(problem.huber(residuals).sum()) / max(1, freedom)


def _more(points: Points, name: str) -> Points:
    """Return points with somewhat more of one column."""
    column = "counted_flops" if name == "compute" else name
    return replace(points, **{column: getattr(points, name) * np.exp(_STEP)})


def _named(form: Form) -> str:
    return " or ".join(QUANTITIES[name] for name in form.needs)
