"""The change that a treatment makes, with an interval.

Three kinds of quantities have three rules:

*Timed* (step time, tokens/s, process memory; `timed` and `intervals`). An observation is a process, and the change is
that of mean logarithms. The intervals of all treatments hold together in 95 % of comparisons. Logarithms are used
because savings multiply: −50 % and +100 % cancel each other.

*Exact* (bytes requested from the allocator). The same run requests the same bytes every time, so the change is a plain
ratio. If the seeds do not agree, the interval is the range of their changes.

*Losses*. The seed is the unit: several processes of one seed count once, by their mean. The change is that of a typical
seed (`typical`), as a fraction of the baseline's mean. Fewer than three seeds give no interval, and differences that
are equal at all seeds give none either. Treatments change a loss by amounts of different sizes, so nothing is pooled.
Bonferroni's correction makes the intervals of all `comparisons` treatments hold together in 95 % of comparisons.

Two rows are equal if every pair is equal. A mean difference of zero is not enough, because two seeds can cancel.
"""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from assay.analysis.typical import typical
from assay.config.base import Frozen

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
