"""Many fits of the parametric law at once: damped Newton steps on the Huber objective, one row for each fit.

A fit has weights of its points; those of a bootstrap are how often each point was drawn. The Hessian keeps the products
of first derivatives only. Points whose residual is beyond δ have no curvature of their own. The damping therefore is
the Hessian of reweighted least squares, which lies above the objective, so that a large damping always descends.
L-BFGS finds the same optima, one after another. `tests/scaling/test_descent.py` compares them.
"""

import numpy as np

from assay.scaling.points import Floats

Logs = tuple[Floats, Floats, Floats]
"""Logarithms of N, D and the loss."""
DELTA = 1e-3
"""Residual of log L from which the Huber loss is linear."""
_MOST_STEPS = 300
_ENOUGH = 1e-9
"""Relative decrease of an objective below which a step counts as the last."""
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1e6
_ROWS = 256
"""Fits at once; more would need more memory and no less time."""


def descend(starts: Floats, logs: Logs, weights: Floats | None = None) -> Floats:
    """Return the constants (a, b, e, α, β) of the lowest objective near each start, `[fits, 5]`.

    `starts` is `[fits, 5]`, `logs` are log N, log D and log L of the points, and `weights` are `[fits, points]`.
    """
    if weights is None:
        weights = np.ones((len(starts), len(logs[0])))
    parts = [
        _descend(starts[first : first + _ROWS], logs, weights[first : first + _ROWS])
        for first in range(0, len(starts), _ROWS)
    ]
    return np.concatenate(parts)


def objectives(values: Floats, logs: Logs) -> Floats:
    """Return the sum of Huber losses of each row of constants, `[rows]`."""
    parts = (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))
    return np.concatenate([huber(_terms(part, logs)[0]).sum(axis=1) for part in parts])


def huber(residuals: Floats) -> Floats:
    """Return the Huber loss of each residual."""
    size = np.abs(residuals)
    return np.where(size <= DELTA, 0.5 * residuals**2, DELTA * (size - 0.5 * DELTA))


def _descend(starts: Floats, logs: Logs, weights: Floats) -> Floats:
    values, damping = starts.copy(), np.ones(len(starts))
    reached = (weights * huber(_terms(values, logs)[0])).sum(axis=1)
    calm, active = np.zeros(len(starts), dtype=int), np.arange(len(starts))
    for _ in range(_MOST_STEPS):
        proposed = values[active] - _step(values[active], logs, weights[active], damping[active])
        objective = (weights[active] * huber(_terms(proposed, logs)[0])).sum(axis=1)
        better = objective < reached[active]
        small = reached[active] - objective <= _ENOUGH * reached[active]
        damping[active] = np.clip(damping[active] * np.where(better, 0.3, 4.0), _LEAST_DAMPING, _MOST_DAMPING)
        values[active[better]], reached[active[better]] = proposed[better], objective[better]
        # A refused step says little while the damping is small.
        calm[active] = np.where(small & (better | (damping[active] >= 10)), calm[active] + 1, 0)
        active = active[calm[active] < 3]
        if not len(active):
            break
    return values


def _terms(values: Floats, logs: Logs) -> tuple[Floats, Floats, Floats]:
    """Return residuals `[fits, points]`, and the shares of the terms in N and in D in the loss."""
    sizes, data, losses = logs
    a, b, e, alpha, beta = (column[:, None] for column in values.T)
    with np.errstate(over="ignore", invalid="ignore"):
        by_size, by_data = a - alpha * sizes, b - beta * data
        most = np.maximum(np.maximum(by_size, by_data), e)
        exps = np.exp(by_size - most), np.exp(by_data - most), np.exp(e - most)
        total = exps[0] + exps[1] + exps[2]
        residuals = most + np.log(total) - losses
    return np.nan_to_num(residuals, nan=np.inf), exps[0] / total, exps[1] / total


def _step(values: Floats, logs: Logs, weights: Floats, damping: Floats) -> Floats:
    residuals, by_size, by_data = _terms(values, logs)
    slopes = np.stack(
        (by_size, by_data, 1 - by_size - by_data, -by_size * logs[0], -by_data * logs[1]), axis=-1
    )  # [fits, points, 5]
    gradient = np.einsum("fp,fpc->fc", weights * np.clip(residuals, -DELTA, DELTA), slopes)
    size = np.abs(residuals)
    curved = weights * ((size <= DELTA) + damping[:, None] * np.minimum(1, DELTA / np.maximum(size, DELTA)))
    hessian = np.matmul((curved[..., None] * slopes).transpose(0, 2, 1), slopes)
    scale = np.sqrt(np.maximum(np.einsum("fcc->fc", hessian), 1e-300))
    scaled = hessian / scale[:, :, None] / scale[:, None, :] + 1e-12 * np.eye(5)
    return np.asarray(np.linalg.solve(scaled, (gradient / scale)[..., None])[..., 0] / scale)
