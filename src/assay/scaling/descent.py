"""Many fits of one law at once: damped Newton steps on the Huber objective, one row for each fit.

A fit has weights of its points; those of a bootstrap are how often each point was drawn. It may have shifts as well,
which are added to the logarithms of the losses. The Hessian keeps the products
of first derivatives only. Points whose residual is beyond δ have no curvature of their own. The damping therefore is
the Hessian of reweighted least squares, which lies above the objective, so that a large damping always descends. It has
some of the identity as well, because neither Hessian has a curvature in a direction in which no loss changes.
With an infinite δ the objective is half a sum of squares. L-BFGS finds the same optima, one after another.
`tests/scaling/test_fitting.py` compares them.

The errors of constants follow from the curvature at a fit. J holds the slopes of log L by the values of a law. The
covariance of these values is σ²·(JᵀJ)⁻¹, written F·Fᵀ. The scatter of the residuals is σ, or 0.1 % if that is more,
because no loss is known better. A direction on which no loss depends has no curvature. Its error would be infinite, so
it is a million.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.scaling.laws.base import Form
from assay.scaling.points import Floats, Points

DELTA = 1e-3
"""Residual of log L from which the Huber loss is linear."""
MOST_STEPS = 300
"""Steps after which a descent ends."""
_ENOUGH = 1e-9
"""Relative decrease of an objective below which a step counts as the last."""
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1e6
_LIFT = 1e-6
"""Share of the identity in a damping."""
_IMPOSSIBLE = 1e100
"""Residual of values for which a law has no loss; a weight of zero times it is still zero."""
_ROWS = 256
"""Fits at once; more would need more memory and no less time."""


@dataclass(frozen=True)
class DescentProblem:
    """A form, the points that it is fitted to, and the residual from which errors count linearly."""

    form: Form
    points: Points
    delta: float = DELTA
    fixed: int | None = None
    """Index of a value that does not move."""

    def residuals(self, values: Floats, shifts: "Floats | float" = 0.0) -> tuple[Floats, Floats]:
        """Return residuals of log L `[fits, points]`, huge where values are impossible, and slopes."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            logs, slopes = self.form.log_losses(values, self.points)
        residuals = np.nan_to_num(logs - np.log(self.points.loss) - shifts, nan=_IMPOSSIBLE)
        return np.clip(residuals, -_IMPOSSIBLE, _IMPOSSIBLE), slopes

    def huber(self, residuals: Floats) -> Floats:
        """Return the Huber loss of each residual."""
        size = np.abs(residuals)
        inner = np.minimum(size, self.delta)
        return inner * (size - 0.5 * inner)


@dataclass(frozen=True)
class Drawn:
    """Weights and shifts of the points of several fits, `[fits, points]`, which differ from a fit of all points."""

    weights: Floats
    shifts: Floats

    def of(self, some: "slice | npt.NDArray[np.int_]") -> "Drawn":
        """Return those of some fits."""
        return Drawn(self.weights[some], self.shifts[some])

    def objectives(self, problem: DescentProblem, values: Floats) -> Floats:
        """Return the objective of each fit, with these values."""
        return self.sums(problem, problem.residuals(values, self.shifts)[0])

    def sums(self, problem: DescentProblem, residuals: Floats) -> Floats:
        """Return the sum of weighted Huber losses of each fit, from its residuals."""
        return np.asarray((self.weights * problem.huber(residuals)).sum(axis=1))


def whole(problem: DescentProblem, fits: int) -> Drawn:
    """Return what fits of all points have: each point once, and none shifted."""
    shape = fits, len(problem.points)
    return Drawn(np.ones(shape), np.zeros(shape))


def descend(
    problem: DescentProblem, starts: Floats, drawn: Drawn | None = None, most_steps: int = MOST_STEPS
) -> Floats:
    """Return the values of the lowest objective near each start, `[fits, k]`; all points count once by default."""
    drawn = whole(problem, len(starts)) if drawn is None else drawn
    parts = (slice(first, first + _ROWS) for first in range(0, len(starts), _ROWS))
    return np.concatenate([_descend(problem, starts[part], drawn.of(part), most_steps) for part in parts])


def objectives(problem: DescentProblem, values: Floats, drawn: Drawn | None = None) -> Floats:
    """Return the sum of Huber losses of each row of values, `[rows]`."""
    drawn = whole(problem, len(values)) if drawn is None else drawn
    parts = (slice(first, first + _ROWS) for first in range(0, len(values), _ROWS))
    return np.concatenate([drawn.of(part).objectives(problem, values[part]) for part in parts])


def _descend(problem: DescentProblem, starts: Floats, drawn: Drawn, most_steps: int) -> Floats:
    values, damping = starts.copy(), np.ones(len(starts))
    residuals, slopes = problem.residuals(values, drawn.shifts)
    reached = drawn.sums(problem, residuals)
    calm, active = np.zeros(len(starts), dtype=int), np.arange(len(starts))
    for _ in range(most_steps):
        some = drawn.of(active)
        step = _step(problem, residuals[active], slopes[active], some.weights, damping[active])
        proposed = values[active] - step
        further = problem.residuals(proposed, some.shifts)
        objective = some.sums(problem, further[0])
        better = objective < reached[active]
        small = reached[active] - objective <= _ENOUGH * reached[active]
        damping[active] = np.clip(damping[active] * np.where(better, 0.3, 4.0), _LEAST_DAMPING, _MOST_DAMPING)
        taken = active[better]
        values[taken], reached[taken] = proposed[better], objective[better]
        residuals[taken], slopes[taken] = (one[better] for one in further)
        # A refused step says little while the damping is small.
        calm[active] = np.where(small & (better | (damping[active] >= 10)), calm[active] + 1, 0)
        active = active[calm[active] < 3]
        if not len(active):
            break
    return values


def _step(problem: DescentProblem, residuals: Floats, slopes: Floats, weights: Floats, damping: Floats) -> Floats:
    """Return what is taken from the values of fits with these residuals and slopes; changes slopes of a fixed value."""
    if problem.fixed is not None:
        slopes[..., problem.fixed] = 0.0
    gradient = np.einsum("fp,fpc->fc", weights * np.clip(residuals, -problem.delta, problem.delta), slopes)
    size, delta = np.abs(residuals), problem.delta
    least_squares = 1.0 if np.isinf(delta) else np.minimum(1, delta / np.maximum(size, delta))
    curved = weights * ((size <= delta) + damping[:, None] * least_squares)
    hessian = np.matmul((curved[..., None] * slopes).transpose(0, 2, 1), slopes)
    scale = np.sqrt(np.maximum(np.einsum("fcc->fc", hessian), 1e-300))
    lifted = 1e-12 + _LIFT * damping[:, None, None]
    scaled = hessian / scale[:, :, None] / scale[:, None, :] + lifted * np.eye(slopes.shape[-1])
    if problem.fixed is not None:
        scaled[:, problem.fixed, problem.fixed] = 1.0
    return np.asarray(np.linalg.solve(scaled, (gradient / scale)[..., None])[..., 0] / scale)


LEAST_SCATTER = 1e-3
"""Scatter of log L that every measured loss has."""
UNKNOWN = 1e6
"""Standard error of a value on which no loss depends."""
_SINGULAR = 1e-12


def spreads(problem: DescentProblem, values: Floats) -> Floats:
    """Return the factor F of the covariance of a fit's values, `[k, k]`: one column for each direction."""
    residuals, slopes = (one[0] for one in problem.residuals(values[None]))
    slopes = np.nan_to_num(slopes)
    freedom = max(1, len(problem.points) - slopes.shape[1])
    scatter = max(LEAST_SCATTER, float(np.sqrt(np.sum(residuals**2) / freedom)))
    scale = np.sqrt((slopes**2).sum(axis=0))
    # A value on which no loss depends is a direction of its own.
    scaled = np.where(scale > 0, slopes / np.where(scale > 0, scale, 1.0), 0.0)
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    flat = singular <= _SINGULAR * singular.max()
    spread = np.where(flat, UNKNOWN, scatter / np.where(flat, 1.0, singular))
    return np.asarray(directions.T * spread / np.where(scale > 0, scale, 1.0)[:, None])
