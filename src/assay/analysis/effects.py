"""The change that a treatment makes, with an interval, and whether it is more than noise.

The change of a loss is that of a typical seed, because the mean over all seeds is no aim for few of them. If one seed
in fifty differs by fifty times as much, most samples lack it, and no interval of theirs knows of it. The median of all
seeds can be told.

Up to `WHOLE` seeds the interval is Student's t (Gosset 1908). Its mean is not the median where differences are skewed,
but for so few seeds that error is small beside its width. With more seeds it would not be. So a third of the seeds
beyond `WHOLE` is left out at each end. The interval is then that of a trimmed mean (Yuen 1974), which nears the median
as seeds are added. `benchmarks/validity.py` counts how often both hold, for normal and skewed differences, and with
outliers.

Bonferroni's correction makes several intervals hold together. Their small levels lie far out in the tails, where
skewness of a few seeds counts for more. So up to `FEW` seeds the levels are divided by `SKEWED` as well.

Values that are rounded may be equal at all seeds, and then nothing is known of their deviation. There is no interval,
and the reason is said. If only some are equal, the deviation is at least that of rounding to their smallest difference.

Three kinds of quantities have three rules for their intervals:

*Timed* (step time, tokens/s, process memory; `timed_processes` and `intervals`). An observation is a process, and the
change is that of mean logarithms. The intervals of all treatments hold together in 95 % of comparisons. Logarithms are
used because savings multiply: −50 % and +100 % cancel each other.

*Exact* (bytes requested from the allocator). The same run requests the same bytes every time, so the change is a plain
ratio. If the seeds do not agree, the interval is the range of their changes.

*Losses*. The seed is the unit: several processes of one seed count once, by their mean. The change is that of a typical
seed (`typical`), as a fraction of the baseline's mean. Fewer than three seeds give no interval, and differences that
are equal at all seeds give none either. Treatments change a loss by amounts of different sizes, so nothing is pooled.
Bonferroni's correction makes the intervals of all `comparisons` treatments hold together in 95 % of comparisons.

Three rules say what is more than noise. Two rows are equal if every pair is equal. A mean difference of zero is not
enough, because two seeds can cancel.

A *sampled* quantity (a time, a process's memory, a loss) differs if its interval excludes zero, and only then. The
intervals of all treatments hold together. Even if no treatment has an effect, at most 5 % of comparisons report that
one differs. The second baseline never differs: it is the same run, so its change is noise.

An *exact* quantity repeats exactly: any change is real, unless two equal baselines show a change as large.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from math import isfinite, log1p, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from assay.config.base import Frozen

LEAST_SEEDS = 3
LOSS_CONFIDENCE = 0.95
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
    return float(stdtrit(degrees(count), 1 - (1 - LOSS_CONFIDENCE) / (2 * comparisons * skewed)))


Pair = tuple[float, float]
"""Values of the baseline and the treatment."""

LOSS_STEP = 2.0**-23
"""Smallest relative difference of two losses in float32."""


class Effect(Frozen):
    """A change against the baseline, as a fraction: −0.1 is ten percent less."""

    change: float
    interval: tuple[float, float] | None
    pairs: int
    """Number of processes of the treatment; for losses, of seeds."""
    equal: bool = False
    """True if treatment and baseline are the same in every pair."""
    untold: str | None = None
    """Why there is no interval, although there are repetitions enough; None if there is one, or too few of them."""


def exact(pairs: Sequence[Pair]) -> Effect | None:
    """Return the change of a quantity that repeats exactly; None without a pair.

    Its interval is a range, or None if all pairs agree.
    """
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
    """Return the change of a loss from the pairs of each seed, as a fraction of the baseline's mean.

    It is None if no pair is finite, and if the baseline's mean is zero.
    """
    finite = [[pair for pair in pairs if isfinite(pair[0]) and isfinite(pair[1])] for pairs in seeds]
    means = [(fmean(before for before, _ in pairs), fmean(after for _, after in pairs)) for pairs in finite if pairs]
    scale = fmean(before for before, _ in means) if means else 0.0
    if not scale:
        return None
    found = typical([(after - before) / scale for before, after in means], comparisons, LOSS_STEP)
    return Effect(
        change=found.middle,
        interval=None if found.half is None else (found.middle - found.half, found.middle + found.half),
        pairs=len(means),
        equal=all(before == after for pairs in seeds for before, after in pairs),
        untold=found.reason,
    )


class Verdict(StrEnum):
    """Verdict on a change, in words that a table can print."""

    DIFFERS = "differs"
    EQUAL = "exactly equal"
    NOT_DISTINGUISHABLE = "not distinguishable"
    """The comparison cannot distinguish the change from none: its interval contains zero."""
    TOO_FEW = "too few to tell"
    UNTOLD = "cannot be told"
    """There is no interval, although there are repetitions enough; the effect has the reason."""

    @property
    def distinguishable(self) -> bool:
        """True if there is a change to report."""
        return self is Verdict.DIFFERS


def judge_sampled(effect: Effect, *, same: bool = False) -> Verdict:
    """Verdict on a quantity that varies between repetitions; `same` if both are known to be the same run."""
    if effect.equal:
        return Verdict.EQUAL
    if same:
        return Verdict.NOT_DISTINGUISHABLE
    if effect.interval is None:
        return Verdict.UNTOLD if effect.untold else Verdict.TOO_FEW
    low, high = effect.interval
    return Verdict.NOT_DISTINGUISHABLE if low <= 0 <= high else Verdict.DIFFERS


def judge_exact(effect: Effect, again: Effect | None) -> Verdict:
    """Verdict on a quantity that repeats exactly; `again` is the change between two equal baselines."""
    if effect.equal:
        return Verdict.EQUAL
    return Verdict.DIFFERS if _size(effect) > _size(again) else Verdict.NOT_DISTINGUISHABLE


def _size(effect: Effect | None) -> float:
    """Largest distance from zero on the log scale, among a change and the ends of its range."""
    if effect is None:
        return 0.0
    ends = (effect.change, *(effect.interval or ()))
    return max(abs(log1p(end)) if end > -1 else float("inf") for end in ends)
