"""The typical difference of a seed, with an interval: half of all seeds differ by more, and half by less.

The mean over all seeds is no aim for few of them. If one seed in fifty differs by fifty times as much, most samples
lack it, and no interval of theirs knows of it. The median of all seeds can be told.

Up to `WHOLE` seeds the interval is Student's t (Gosset 1908). Its mean is not the median where differences are skewed,
but for so few seeds that error is small beside its width. With more seeds it would not be. So a third of the seeds
beyond `WHOLE` is left out at each end. The interval is then that of a trimmed mean (Yuen 1974), which nears the median
as seeds are added. `benchmarks/validity.py` counts how often both hold, for normal and skewed differences, and with
outliers.

Bonferroni's correction makes several intervals hold together. Their small levels lie far out in the tails, where
skewness of a few seeds counts for more. So up to `FEW` seeds the levels are divided by `SKEWED` as well.

Values that are rounded may be equal at all seeds, and then nothing is known of their deviation. There is no interval,
and the reason is said. If only some are equal, the deviation is at least that of rounding to their smallest difference.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

LEAST_SEEDS = 3
CONFIDENCE = 0.95
WHOLE = 10
"""Most seeds of which none is left out."""
FEW, SKEWED = 5, 1.4
"""Up to so many seeds, an interval that is one of several has its level divided by the second number."""
EQUAL = "the difference is the same at every seed, so its deviation is not known"
_SAME = 1e-12
"""Differences that are so near are equal but for the rounding of their subtraction."""


class Typical(NamedTuple):
    """A typical difference."""

    middle: float
    """Mean of the differences that are not left out."""
    half: float | None
    """Half width of its interval; None if there is none."""
    reason: str | None = None
    """Why it has no interval, although there are seeds enough."""


def typical(values: Sequence[float], comparisons: int, step: float = 0.0) -> Typical:
    """Return the typical one of some differences, as one of several comparisons.

    `step` is the smallest difference that the values can show. Differences that vary by less are equal, and they are
    zero if none is larger.
    """
    ordered, out = sorted(values), left_out(len(values))
    kept = ordered[out : len(ordered) - out]
    middle = fmean(kept)
    if len(ordered) < LEAST_SEEDS:
        return Typical(middle, None)
    least = max(step, _SAME)
    gaps = [after - before for before, after in pairwise(ordered) if after - before > least]
    if not gaps and max(map(abs, ordered)) > least:
        return Typical(middle, None, EQUAL)
    limited = [kept[0]] * out + kept + [kept[-1]] * out
    trimmed = stdev(limited) * sqrt((len(ordered) - 1) / (len(kept) - 1))
    deviation = max(trimmed, min(gaps, default=step) / sqrt(12))
    return Typical(middle, factor(len(ordered), comparisons) * deviation / sqrt(len(kept)))


def left_out(count: int) -> int:
    """Return how many of so many seeds are left out at each end."""
    return max(0, (count - WHOLE + 2) // 3)


def degrees(count: int) -> int:
    """Return the degrees of freedom of so many seeds."""
    return count - 2 * left_out(count) - 1


def factor(count: int, comparisons: int) -> float:
    """Return the half width of an interval in standard errors, for so many seeds and one of several comparisons."""
    from scipy.special import stdtrit

    skewed = SKEWED if comparisons > 1 and count <= FEW else 1.0
    return float(stdtrit(degrees(count), 1 - (1 - CONFIDENCE) / (2 * comparisons * skewed)))
