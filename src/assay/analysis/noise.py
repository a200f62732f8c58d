"""Verdicts on changes: which of them are more than noise.

A *sampled* quantity (a time, a process's memory, a loss) differs if its interval excludes zero, and only then. The
intervals of all treatments hold together. Even if no treatment has an effect, at most 5 % of comparisons report that
one differs. The second baseline never differs: it is the same run, so its change is noise.

An *exact* quantity repeats exactly: any change is real, unless two equal baselines show a change as large.
"""

from enum import StrEnum
from math import log1p

from assay.analysis.effects import Effect


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
