"""The change that a treatment makes, with an interval.

Three kinds of quantity, three rules:

*Timed* (step time, tokens/s, process memory; `timed` and `intervals`). The observation is a process, the change is that
of mean logarithms, and the intervals of all treatments hold together in 95 % of comparisons. Logarithms, because
savings multiply: −50 % and +100 % undo each other.

*Exact* (bytes requested from the allocator). The same run asks for the same bytes every time: the change is a plain
ratio. Where the seeds do not agree, the interval is the range that they span.

*Losses*. The seed is the unit: several processes of one seed count once, by their mean. Fewer than three seeds give no
interval. From three on it is Student's t of the differences (Gosset 1908), as a fraction of the baseline's mean.
Treatments change a loss by amounts of unlike sizes, so nothing is pooled. Bonferroni's correction makes the intervals
of all `comparisons` treatments hold together in 95 % of comparisons.

Two rows are equal where every pair is. A mean difference of zero is not enough: two seeds can cancel.
"""

from collections.abc import Sequence
from math import isfinite, sqrt
from statistics import fmean, stdev

from assay.config.base import Frozen

Pair = tuple[float, float]
"""(baseline, treatment)."""

LEAST_SEEDS = 3
CONFIDENCE = 0.95


class Effect(Frozen):
    """A change against the baseline, as a fraction: −0.1 is ten percent less."""

    change: float
    interval: tuple[float, float] | None
    pairs: int
    """Processes of the treatment; for losses, seeds."""
    equal: bool = False
    """True if treatment and baseline are the same in every pair."""


def exact(pairs: Sequence[Pair]) -> Effect | None:
    """The change of a quantity that repeats exactly; its interval is a range, and None where all pairs agree."""
    changes = [after / before - 1 for before, after in pairs if before > 0]
    if not changes:
        return None
    spread = min(changes), max(changes)
    return Effect(
        change=fmean(changes),
        interval=None if spread[0] == spread[1] else spread,
        pairs=len(changes),
        equal=all(before == after for before, after in pairs),
    )


def loss(seeds: Sequence[Sequence[Pair]], comparisons: int = 1) -> Effect | None:
    """The change of a loss, as a fraction of the baseline's mean, from the pairs of each seed."""
    finite = [[pair for pair in pairs if isfinite(pair[0]) and isfinite(pair[1])] for pairs in seeds]
    means = [(fmean(before for before, _ in pairs), fmean(after for _, after in pairs)) for pairs in finite if pairs]
    if not means:
        return None
    scale = fmean(before for before, _ in means)
    differences = [after - before for before, after in means]
    mean = fmean(differences)
    half = _half_width(differences, comparisons)
    return Effect(
        change=mean / scale,
        interval=None if half is None else ((mean - half) / scale, (mean + half) / scale),
        pairs=len(means),
        equal=all(before == after for pairs in seeds for before, after in pairs),
    )


def _half_width(values: Sequence[float], comparisons: int) -> float | None:
    """Half of Student's interval of the mean, for one of several comparisons; None below `LEAST_SEEDS` values."""
    if len(values) < LEAST_SEEDS:
        return None
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, 1 - (1 - CONFIDENCE) / (2 * comparisons)))
    return quantile * stdev(values) / sqrt(len(values))
