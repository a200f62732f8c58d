"""Quantiles for intervals: Student's t, and Dunnett's factor for several treatments against one baseline."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Probability that all intervals of a comparison hold."""
LEAST_DEGREES = 2
"""Fewest degrees of freedom of an interval; a single one would rest on one difference."""

Floats = NDArray[np.floating[Any]]


def student(probability: float, degrees: Floats | float) -> Floats:
    """Quantile of Student's t; NaN below one degree of freedom."""
    from scipy.special import stdtrit

    degrees = np.asarray(degrees, dtype=float)
    return np.where(degrees >= 1, stdtrit(np.maximum(degrees, 1), probability), np.nan)


@lru_cache(maxsize=256)
def critical_value(count: int, correlation: float, degrees: int) -> float:
    """Dunnett's two-sided factor for `count` changes with equal correlations; NaN below `LEAST_DEGREES`."""
    if degrees < LEAST_DEGREES or count < 1:
        return float("nan")
    low = float(student((1 + CONFIDENCE) / 2, degrees))
    high = float(student(1 - (1 - CONFIDENCE) / (2 * count), degrees))
    while high - low > 1e-6 and count > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, count, correlation, degrees) < CONFIDENCE else (low, middle)
    return high


def critical_values(count: int, correlation: float, degrees: Floats) -> Floats:
    """Return `critical_value` for each number of degrees of freedom; between whole ones it is linear in 1 / degrees."""
    degrees = np.asarray(degrees, dtype=float)
    whole = np.floor(degrees)
    known = {one: critical_value(count, correlation, int(one)) for one in np.unique([whole, whole + 1])}
    low, high = (np.vectorize(known.__getitem__, otypes=[float])(one) for one in (whole, whole + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(degrees == whole, 0.0, (1 / whole - 1 / degrees) / (1 / whole - 1 / (whole + 1)))
    return np.asarray(np.where(part > 0, low + part * (high - low), low))


def _inside(bound: float, count: int, correlation: float, degrees: int) -> float:
    """P(max |T| ≤ bound): Gauss–Hermite over the shared part, midpoints of probability over the deviation."""
    from scipy.special import chdtri, ndtr

    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    tail = (np.arange(400) + 0.5) / 400
    reach = bound * np.sqrt(chdtri(degrees, tail) / degrees)[:, None]
    shared, own = np.sqrt(correlation) * nodes, np.sqrt(1 - correlation)
    each = ndtr((reach + shared) / own) - ndtr((shared - reach) / own)
    return float((each**count).mean(axis=0) @ (weights / weights.sum()))
