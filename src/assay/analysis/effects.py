"""The change that a treatment makes, with an interval.

Three kinds of quantity, three rules:

*Timed* (step time, tokens/s, process memory). The cells take turns in blocks, so block r of the treatment and block r
of the baseline at the same seed saw the same machine: they are a pair. Of each pair the logarithm of the ratio is
taken, d = log(treatment / baseline); the change is exp(mean d) − 1 and its 95 % interval is exp(mean d ± t·s/√n) − 1
with Student's t for n − 1 degrees of freedom (Gosset 1908). Logarithms, because savings multiply: −50 % and +100 %
undo each other. Fewer than five pairs give a change without an interval.

*Exact* (bytes requested from the allocator). The same run asks for the same bytes every time: the change is a plain
ratio. Where the seeds do not agree, the interval is the range that they span.

*Losses*. What varies is the seed, so the pair is (treatment, baseline) at one seed and fewer than three seeds give no
interval. From three on, the mean difference with Student's t, as a fraction of the baseline's mean.

Caveat: the blocks of one process share its memory layout and its neighbours, so an interval over blocks says how well
*these processes* were measured; what another process of the same kind would do is what the A/A pair shows (`noise`).
"""

from collections.abc import Sequence
from math import exp, isfinite, log, sqrt
from statistics import fmean, stdev

from assay.config.base import Frozen

Pair = tuple[float, float]
"""(baseline, treatment)."""

LEAST_PAIRS = 5
LEAST_SEEDS = 3
CONFIDENCE = 0.95


class Effect(Frozen):
    """A change against the baseline, as a fraction: −0.1 is ten percent less."""

    change: float
    interval: tuple[float, float] | None
    pairs: int


def timed(pairs: Sequence[Pair]) -> Effect | None:
    """The change of a timed quantity over paired blocks; None without a pair of positive values."""
    ratios = [log(after / before) for before, after in pairs if before > 0 and after > 0]
    if not ratios:
        return None
    mean = fmean(ratios)
    half = _half_width(ratios, LEAST_PAIRS)
    interval = None if half is None else (exp(mean - half) - 1, exp(mean + half) - 1)
    return Effect(change=exp(mean) - 1, interval=interval, pairs=len(ratios))


def exact(pairs: Sequence[Pair]) -> Effect | None:
    """The change of a quantity that repeats exactly; its interval is a range, and None where all pairs agree."""
    changes = [after / before - 1 for before, after in pairs if before > 0]
    if not changes:
        return None
    spread = min(changes), max(changes)
    return Effect(change=fmean(changes), interval=None if spread[0] == spread[1] else spread, pairs=len(changes))


def loss(pairs: Sequence[Pair]) -> Effect | None:
    """The change of a loss over pairs of equal seed, as a fraction of the baseline's mean."""
    pairs = [pair for pair in pairs if isfinite(pair[0]) and isfinite(pair[1])]
    if not pairs:
        return None
    scale = fmean(before for before, _ in pairs)
    differences = [after - before for before, after in pairs]
    mean = fmean(differences)
    half = _half_width(differences, LEAST_SEEDS)
    interval = None if half is None else ((mean - half) / scale, (mean + half) / scale)
    return Effect(change=mean / scale, interval=interval, pairs=len(pairs))


def _half_width(values: Sequence[float], least: int) -> float | None:
    """Half of Student's interval of the mean; None below `least` values."""
    if len(values) < least:
        return None
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return quantile * stdev(values) / sqrt(len(values))
