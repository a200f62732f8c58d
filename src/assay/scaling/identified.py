"""Constants that points cannot tell apart, by the curvature of least squares at a fit.

A bootstrap of points that lie on a law to the last digit shows no error at all. Points on a line in log N and log D,
such as D = 20·N, make two columns of slopes nearly equal. Then the errors by the curvature are large.
"""

import numpy as np

from assay.scaling.curvature import UNKNOWN, spreads
from assay.scaling.descent import DescentProblem
from assay.scaling.fitting import FitResult
from assay.scaling.points import Floats

_NORMAL = 1.96


def standard_errors(found: FitResult) -> Floats:
    """Return the standard error of each value of a fit, `[k]`."""
    factor = spreads(DescentProblem(found.law.form, found.points), found.law.values)
    return np.asarray(np.minimum(np.sqrt((factor**2).sum(axis=1)), UNKNOWN))


def unidentified(found: FitResult, ratio: float) -> set[str]:
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
