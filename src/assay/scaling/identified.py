"""Constants that points cannot tell apart, by the curvature of least squares at a fit.

The standard errors of a fit's values are σ·√diag((JᵀJ)⁻¹). J holds the slopes of log L by the values. The scatter of
the residuals is σ, or 0.1 % if that is more, because no loss is known better. A bootstrap of points that lie on a law
to the last digit shows no error at all. Points on a line in log N and log D, such as D = 20·N, make two columns of J
nearly equal. Then these errors are large.
"""

import numpy as np

from assay.scaling.descent import Problem
from assay.scaling.fitting import Fit
from assay.scaling.points import Floats

LEAST_SCATTER = 1e-3
"""Scatter of log L that every measured loss has."""
_SINGULAR = 1e-12
_UNKNOWN = 1e6
"""Standard error of a value on which no loss depends."""
_NORMAL = 1.96


def standard_errors(found: Fit) -> Floats:
    """Return the standard error of each value of a fit, `[k]`."""
    slopes = Problem(found.law.form, found.points).residuals(found.law.values[None])[1][0]
    freedom = max(1, len(found.points) - slopes.shape[1])
    scatter = max(LEAST_SCATTER, float(np.sqrt(np.sum(found.residuals**2) / freedom)))
    scale = np.sqrt((np.nan_to_num(slopes) ** 2).sum(axis=0))
    known = scale > 0
    _, singular, directions = np.linalg.svd(np.nan_to_num(slopes)[:, known] / scale[known], full_matrices=False)
    spread = np.where(singular > _SINGULAR * singular.max(), 1 / np.maximum(singular, 1e-300), _UNKNOWN)
    errors = np.full(len(scale), _UNKNOWN)
    errors[known] = scatter * np.sqrt(((directions.T * spread) ** 2).sum(axis=1)) / scale[known]
    return np.asarray(np.minimum(errors, _UNKNOWN))


def unidentified(found: Fit, ratio: float) -> set[str]:
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
