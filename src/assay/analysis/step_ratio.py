"""The time of a step over that of the same step at a base commit, with an interval over pairs of processes.

A pair of processes that took turns is one observation: the difference of their mean logarithms over rounds. With one
base and one step the intervals of `analysis.intervals` are Student's t over the pairs' differences.
"""

from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from assay.launch.turns import TimedPair
from assay.records.status import Exit


@dataclass(frozen=True)
class StepRatio:
    """Time of a step over that of the same step at a base commit."""

    step: str
    """Name of the function."""
    pairs: tuple[TimedPair, ...]
    ratio: float
    interval: tuple[float, float]
    """Range of the true ratio in 95 % of such comparisons."""

    @property
    def by_pair(self) -> tuple[float, ...]:
        """The ratio of each pair."""
        return tuple(exp(after - before) for before, after in map(_logs, self.pairs))

    @property
    def disturbed(self) -> tuple[int, int]:
        """Number of rounds that others disturbed, and of all."""
        rounds = [one for pair in self.pairs for one in pair.rounds]
        return sum(any(block.disturbed for block in one) for one in rounds), len(rounds)


@dataclass(frozen=True)
class GateTimes:
    """Ratios of several steps, and the limit that they must not exceed."""

    base: str
    """Name of the base commit for a reader."""
    ratios: tuple[StepRatio, ...]
    at_most: float | None = None

    def exceeds(self, one: StepRatio) -> bool:
        """True if the whole interval of a ratio is above the limit."""
        return self.at_most is not None and one.interval[0] > self.at_most

    @property
    def exit_code(self) -> Exit:
        """Exit code of the comparison."""
        return Exit.UNMET if any(map(self.exceeds, self.ratios)) else Exit.DONE


def step_ratio(step: str, pairs: tuple[TimedPair, ...]) -> StepRatio:
    """Return the ratio of a step with its interval, of at least three pairs."""
    import numpy as np

    from assay.analysis.intervals import Design

    count = len(pairs)
    values = np.array([one for pair in pairs for one in _logs(pair)])
    found = Design([0, 1] * count, [place for place in range(count) for _ in range(2)]).differences(values)
    change, half = float(found.change[0]), float(found.half_width[0])
    return StepRatio(step, pairs, exp(change), (exp(change - half), exp(change + half)))


def _logs(pair: TimedPair) -> tuple[float, float]:
    """Return the mean logarithm of the step's time in both processes, over the rounds that count."""
    base, now = zip(*((log(one.median_step_seconds) for one in blocks) for blocks in pair.clean), strict=True)
    return fmean(base), fmean(now)
