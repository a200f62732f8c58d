"""Ratios over pairs: their geometric mean, with a 95 % interval of Student's t on their logarithms."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.stats import t


def mean_ratio(ratios: Sequence[float]) -> str:
    """Return the geometric mean of positive ratios and its interval; a single ratio has none."""
    logs = [math.log(one) for one in ratios]
    if len(logs) < 2:
        return f"{ratios[0]:.3f}"
    half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(fmean(logs)):.3f} [{math.exp(fmean(logs) - half):.3f}, {math.exp(fmean(logs) + half):.3f}]"
