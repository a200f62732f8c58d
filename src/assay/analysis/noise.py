"""Which changes are more than noise.

A *sampled* quantity (a time, a process's memory, a loss) differs where its interval excludes zero, and only there.
The intervals of all treatments hold together, so a comparison whose treatments do nothing says "differs" of any of them
in 5 % of cases at most. The second baseline is never said to differ: it is the same run, so its change is noise.

An *exact* quantity repeats exactly: any change is one, unless two equal baselines show one as large.
"""

from enum import StrEnum
from math import log1p

from assay.analysis.effects import Effect


class Verdict(StrEnum):
    """What can be said of a change, in words that a table can print."""

    DIFFERS = "differs"
    EQUAL = "exactly equal"
    NOT_DISTINGUISHABLE = "not distinguishable"
    """From no change, by this comparison: its interval holds zero."""
    TOO_FEW = "too few to tell"

    @property
    def distinguishable(self) -> bool:
        """Whether there is a change to speak of."""
        return self is Verdict.DIFFERS


def judge_sampled(effect: Effect, *, same: bool = False) -> Verdict:
    """The verdict on a quantity that varies between repetitions; `same` if both are known to be the same run."""
    if effect.equal:
        return Verdict.EQUAL
    if same:
        return Verdict.NOT_DISTINGUISHABLE
    if effect.interval is None:
        return Verdict.TOO_FEW
    low, high = effect.interval
    return Verdict.NOT_DISTINGUISHABLE if low <= 0 <= high else Verdict.DIFFERS


def judge_exact(effect: Effect, again: Effect | None) -> Verdict:
    """The verdict on a quantity that repeats exactly; `again` is the change between two equal baselines."""
    if effect.equal:
        return Verdict.EQUAL
    return Verdict.DIFFERS if _size(effect) > _size(again) else Verdict.NOT_DISTINGUISHABLE


def _size(effect: Effect | None) -> float:
    """Largest distance from no change on the log scale, among a change and the ends of its range."""
    if effect is None:
        return 0.0
    ends = (effect.change, *(effect.interval or ()))
    return max(abs(log1p(end)) if end > -1 else float("inf") for end in ends)
