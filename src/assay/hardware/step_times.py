"""Step times that were measured at small depths, and the step time of any depth that follows from them.

Blocks of a model do equal work, so the time of a step is affine in the number of blocks. Steps of a model with one
block and of one with three are timed in turns, and each turn is extrapolated: t(1) + (layers − 1)·(t(3) − t(1))/2. The
prediction is the median over the turns. Caches, the allocator and the engine of autograd are in the state that they
have in training, because whole training steps are timed. A model of at most three blocks is timed as it is.
"""

import statistics
from collections.abc import Sequence

from assay.config.base import Frozen
from assay.config.run import ResolvedRun

WHOLE = 3
"""Largest number of blocks at which the model itself is timed."""
_DEPTHS = (1, WHOLE)
BETWEEN_PROCESSES = 0.08
"""Relative error that remains however long one process is timed: equal processes differ, and deeper models use caches
less. It is a little more than the 95th percentile of one thread's errors in docs/measured/estimator_accuracy.md."""
LOADED = 0.1
"""Share of the cores in use by others above which a measurement may be too slow."""
_NORMAL = 1.4826 * 1.2533
"""Standard error of a median over its median absolute deviation and √n, for normal errors."""


def depths(layers: int) -> tuple[int, ...]:
    """Return the numbers of blocks at which a model of `layers` blocks is timed."""
    return (layers,) if layers <= WHOLE else _DEPTHS


class StepTimes(Frozen):
    """Seconds of whole steps at one or two depths, turn by turn."""

    depths: tuple[int, ...]
    turns: tuple[tuple[float, ...], ...]
    """Seconds of one step at each depth, for each turn."""
    host_turns: tuple[tuple[float, ...], ...] = ()
    """Seconds in which the host queued a step of an accelerator; empty on a CPU."""
    device_turns: tuple[tuple[float, ...], ...] = ()
    """Seconds between the events before and after a step in an accelerator's queue; empty on a CPU."""
    others_share: float | None = None
    """Share of all cores that other programs used meanwhile; None if it is not known."""

    def serves(self, layers: int) -> bool:
        """True if the step time of so many blocks follows from these."""
        return self.depths == depths(layers)

    def seconds(self, layers: int) -> float:
        """Seconds of a step with so many blocks."""
        return statistics.median(self._turns(self.turns, layers))

    def apart(self, layers: int) -> tuple[float, float] | None:
        """Seconds of the host and of its accelerator, which work at the same time; None on a CPU."""
        if not self.host_turns or not self.device_turns:
            return None
        host, device = (statistics.median(self._turns(one, layers)) for one in (self.host_turns, self.device_turns))
        return host, device

    def margin(self, layers: int) -> float:
        """Half of the 95 % interval, relative to the seconds.

        Under load, the share of the cores that others used is one of its parts: a step without them may be as much
        quicker.
        """
        error = 2 * relative_error(self._turns(self.turns, layers))
        load = self.others_share or 0.0 if self.under_load else 0.0
        return float((error**2 + BETWEEN_PROCESSES**2 + load**2) ** 0.5)

    @property
    def under_load(self) -> bool:
        """True if other programs used the machine meanwhile, as far as that is known."""
        return (self.others_share or 0.0) > LOADED

    def _turns(self, turns: Sequence[Sequence[float]], layers: int) -> list[float]:
        return [_extrapolated(self.depths, turn, layers) for turn in turns]


def relative_error(seconds: Sequence[float]) -> float:
    """Return the standard error of the median of repeated times, relative to it."""
    middle = statistics.median(seconds)
    spread = statistics.median(abs(one - middle) for one in seconds)
    return float(_NORMAL * spread / len(seconds) ** 0.5 / middle)


def _extrapolated(depths: Sequence[int], turn: Sequence[float], layers: int) -> float:
    if len(depths) == 1:
        return turn[0]
    (shallow, deep), (less, more) = depths, turn
    return max(less, less + (layers - shallow) * (more - less) / (deep - shallow))


class Task(Frozen):
    """A step to be timed."""

    digest: str
    """Digest of the step under which its times are kept."""
    runs: tuple[ResolvedRun, ...]
    """The run at each depth, from the shallowest."""
    seconds: float
    """Seconds after which no further turn begins."""


class CalibrationReply(Frozen):
    """Times of a task, or the reason why it has none."""

    digest: str
    times: StepTimes | None = None
    refused: str = ""
