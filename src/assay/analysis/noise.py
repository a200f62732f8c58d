"""Which changes are more than noise.

The baseline runs twice. What the two differ by, although nothing was changed, is the noise floor of a metric: the end
of the A/A interval that lies farther from zero, or the A/A change itself where there is no interval. On the log scale,
so that a saving and a loss are held against the same bar. A change is distinguishable when its interval leaves out
zero *and* it is larger than the floor.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import expm1, log1p

from assay.analysis.effects import Effect
from assay.config.base import Frozen


class Verdict(StrEnum):
    """What can be said of a change, in words that a table can print."""

    DIFFERS = "differs"
    EQUAL = "exactly equal"
    WITHIN_NOISE = "within the noise"
    TOO_FEW = "too few to tell"

    @property
    def distinguishable(self) -> bool:
        """Whether there is a change to speak of."""
        return self is Verdict.DIFFERS


class Noise(Frozen):
    """What two runs of the same thing differed by."""

    effects: Mapping[str, Effect]
    """The A/A pair's, by metric; a metric is missing where the pair did not give it."""

    def floor(self, metric: str) -> float | None:
        """The largest change that nothing at all makes, as a positive fraction; None when it is not known."""
        effect = self.effects.get(metric)
        return None if effect is None else expm1(max(map(_size, (effect.change, *(effect.interval or ())))))

    def judge_sampled(self, metric: str, effect: Effect) -> Verdict:
        """Of a quantity that varies between repetitions: a time, a process's memory, a loss."""
        if effect.change == 0 and effect.interval in (None, (0.0, 0.0)):
            return Verdict.EQUAL
        if _size(effect.change) <= _size(self.floor(metric) or 0.0):
            return Verdict.WITHIN_NOISE
        if effect.interval is None:
            return Verdict.TOO_FEW
        low, high = effect.interval
        return Verdict.WITHIN_NOISE if low <= 0 <= high else Verdict.DIFFERS

    def judge_exact(self, metric: str, effect: Effect) -> Verdict:
        """Of a quantity that repeats exactly: any change is one, unless the A/A pair shows one as large."""
        if effect.change == 0 and effect.interval is None:
            return Verdict.EQUAL
        return Verdict.DIFFERS if _size(effect.change) > _size(self.floor(metric) or 0.0) else Verdict.WITHIN_NOISE


def _size(change: float) -> float:
    """Distance from no change on the log scale."""
    return abs(log1p(change)) if change > -1 else float("inf")
