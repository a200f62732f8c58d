"""Whether losses fall: a law of rising losses, or of losses without a trend, would say nothing.

Losses fall if the fitted law falls with one of its quantities: N, D, C or another column. Losses have a trend if the
law explains them better than one number does. For that the residuals of both are compared, as sums of Huber losses.
Each is divided by its degrees of freedom, because a law with many constants fits any few points.
"""

from dataclasses import replace

import numpy as np

from assay.errors import UsageError
from assay.scaling.descent import DescentProblem
from assay.scaling.fitting import FitResult
from assay.scaling.laws.base import Form, log_losses
from assay.scaling.points import QUANTITIES, Floats, Points

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
    left = unexplained(found)
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


def unexplained(found: FitResult) -> float:
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
