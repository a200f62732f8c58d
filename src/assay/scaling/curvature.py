"""The curvature of least squares at a fit: how far each value may move before losses change beyond their scatter.

J holds the slopes of log L by the values of a law. The covariance of these values is σ²·(JᵀJ)⁻¹, written F·Fᵀ. The
scatter of the residuals is σ, or 0.1 % if that is more, because no loss is known better. A direction on which no loss
depends has no curvature. Its error would be infinite, so it is a million.
"""

import numpy as np

from assay.scaling.descent import DescentProblem
from assay.scaling.points import Floats

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
