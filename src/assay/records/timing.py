"""Times of a run: its steady steps, and its timed blocks, alone and in rounds."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from assay.config.base import Frozen
from assay.records.base import Record


class Quartiles(Record):
    """Median, quartiles and size of a sample."""

    median: float
    lower: float
    upper: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Quartiles of `values` with linear interpolation; None if there are no values."""
        if len(values) < 2:
            return cls(median=values[0], lower=values[0], upper=values[0], count=1) if values else None
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper, count=len(values))


DISTURBED = 0.1
"""Share of all processor time that others must take for a block to count as disturbed."""


LEAST_DISTURBANCE_SECONDS = 0.04
"""Least processor time that counts: the kernel counts in hundredths of a second, and a few of them disturb nothing."""


def disturbs(taken: float, seconds: float, cores: int) -> bool:
    """True if others who took processor seconds within some seconds of wall time disturbed what was timed in them."""
    return taken > max(DISTURBED * cores * seconds, LEAST_DISTURBANCE_SECONDS)


OUTSIDE_SHARE = 0.02
"""Share of the time of other cells' turns that each rank of a cell may use, on one core, while it waits.

A waiting cell of one process used none in 18 s of turns, and two ranks 0.6 % to 0.9 % each: their launcher looks after
them.
"""


LOOP_SECONDS = 3e-4
"""Time between two steps that the loop itself may take: with the watch of updates it took 0.15 to 0.2 ms."""
BETWEEN_SHARE = 0.05
"""Share of the steps' time that may pass between their clocks, beyond the usual."""
GAP_SECONDS, GAP_SHARE = 1e-4, 0.01
"""Usual time between two steps beyond the controls': as much as theirs or this, and this share of a step.

Under a load of 4 on 2 cores it was at most 0.07 ms in eight techniques, for steps of 8 to 40 ms.
"""
FEWEST_GAPS = 5
"""Steps that a median of the time between them needs: one interruption must not make it."""


CLOCK_FALL = 0.05
"""Share of its usual clock by which a GPU's clock must have fallen for a block to count as disturbed."""


class GpuState(Record):
    """State of a GPU over the timed steps of a block. At its power limit a GPU lowers its clock all the time."""

    clock_hertz: float
    """Mean clock of its multiprocessors."""
    watts: float
    """Mean power."""
    celsius: float
    """Highest temperature."""
    slowed_by: tuple[str, ...] = ()
    """Reasons beyond its power limit for which it was slowed, such as its temperature."""


class Block(Record):
    """One timed block: consecutive steady steps. The other cells of a comparison take their turns between blocks.

    It begins with a settling step if it has several steps. The settling step is not timed and counts only for
    `process_peak_bytes`.
    """

    steps: int
    seconds: float
    """Sum of the timed steps' seconds."""
    median_step_seconds: float
    tokens: int
    process_peak_bytes: int | None = None
    """Peak of the process's resident anonymous memory in a settling step: the lowest of all blocks so far."""
    steal_seconds: float | None = None
    """Processor time that a hypervisor gave to others during the timed steps, summed over all cores."""
    others_seconds: float | None = None
    """Processor time of processes outside this run during the timed steps, summed over all cores."""
    load: float | None = None
    """Runnable and running tasks at the end of the block, averaged over a minute by the kernel."""
    clock_hertz: float | None = None
    """Mean clock frequency of the cores at the end of the block."""
    cores: int | None = None
    """Number of cores over which processor times were summed."""
    gpu: GpuState | None = None
    """State of the GPU; None without one, and where `nvidia-smi` does not tell it."""
    host_seconds: float | None = None
    """Part of `seconds` until the host had queued the steps on a GPU; None on a CPU."""
    device_seconds: float | None = None
    """Seconds of the steps by events of the GPU; None on a CPU, or if the events have no time."""
    usual_gpu_clock_hertz: float | None = None
    """Median clock of the GPU over the run's earlier blocks; None in the first one."""
    repeated: bool = False
    """True if the block's steps followed the run's last one and were discarded, to replace a disturbed block."""
    usual_between_seconds: float | None = None
    """Median of the time from one step's clock to the next one's; None if the figures of steps are read together."""
    between_seconds: float | None = None
    """Wall time of the block outside of its timed steps' clocks; None in records older than this field."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Read a block from its event, in which fields may be missing if an earlier version wrote it."""
        return cls.model_validate({name: event[name] for name in cls.model_fields if name in event})

    @property
    def disturbed(self) -> bool:
        """True if others took more than `DISTURBED` of the processor time of the timed steps, or the GPU was slowed."""
        if self.gpu_was_slowed:
            return True
        if self.others_seconds is None or self.cores is None:
            return False
        return disturbs(self.others_seconds + (self.steal_seconds or 0.0), self.seconds, self.cores)

    @property
    def gpu_was_slowed(self) -> bool:
        """True if the GPU's clock fell by more than `CLOCK_FALL`, or something other than its power slowed it."""
        if self.gpu is None:
            return False
        usual = self.usual_gpu_clock_hertz or 0.0
        return bool(self.gpu.slowed_by) or self.gpu.clock_hertz < (1 - CLOCK_FALL) * usual


HOST_BOUND = 0.95
"""Share of a step's time from which on the host's queueing bounds it: the device then waits for the host."""


def host_share(blocks: Iterable[Block]) -> float | None:
    """Return the share of timed steps' seconds in which the host queued them; None on a CPU and in older records."""
    known = [(one.host_seconds, one.seconds) for one in blocks if one.host_seconds is not None]
    if not known:
        return None
    host, whole = map(sum, zip(*known, strict=True))
    return float(host / whole)


class Between(Frozen):
    """Time of a run's blocks between the clocks of their steps.

    Other programs may interrupt the process between any two steps. So either all of this time is far too much, or the
    median of a step is.
    """

    seconds: float
    """Wall time of the blocks outside of the clocks of their steps."""
    of_seconds: float
    """Sum of the steps' seconds."""
    usual_seconds: float = 0.0
    """Median over steps beyond what the loop takes, times the steps; 0 if too few of them tell it."""
    gap_seconds: float | None = None
    """Median time between two steps; None if too few of them tell it."""
    steps: int = 0
    """Number of timed steps."""

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Self | None:
        """Sum it over blocks; None if none has it."""
        known = [(one.between_seconds, one.seconds) for one in blocks if one.between_seconds is not None]
        if not known:
            return None
        medians = [one.usual_between_seconds for one in blocks for _ in range(one.steps)]
        told = [one for one in medians if one is not None]
        usual = statistics.median(told) if len(told) >= FEWEST_GAPS else None
        return cls(
            seconds=sum(one for one, _ in known),
            of_seconds=sum(one for _, one in known),
            usual_seconds=max(0.0, (usual or 0.0) - LOOP_SECONDS) * len(told),
            gap_seconds=usual,
            steps=sum(one.steps for one in blocks),
        )

    def too_much(self, usual_share: float | None = None) -> bool:
        """True if it is so much more than the usual share of the steps' time that work may be hidden in it.

        The usual share is by default what the loop itself takes.
        """
        usual = LOOP_SECONDS * self.steps if usual_share is None else usual_share * self.of_seconds
        bound = BETWEEN_SHARE * self.of_seconds + usual
        return self.seconds > max(bound, LEAST_DISTURBANCE_SECONDS) or self.usual_seconds > bound

    def longer_than(self, usual: Self) -> bool:
        """True if the median time between two steps is so much more than the usual one that a clock may be slow."""
        if self.gap_seconds is None or usual.gap_seconds is None or not self.steps:
            return False
        allowed = max(usual.gap_seconds, GAP_SECONDS) + GAP_SHARE * self.of_seconds / self.steps
        return self.gap_seconds > usual.gap_seconds + allowed


class Round(Frozen):
    """One timed block of every living cell, in the order of execution."""

    seed: int
    wave: int
    number: int
    order: tuple[str, ...]
    disturbed: tuple[str, ...] = ()
    """Cells whose block was disturbed. Such a round does not count if there are enough undisturbed ones."""
    turn_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Wall time of each cell's turn; empty in records older than this field."""
    outside_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Processor seconds that the processes of each cell used in the turns of others."""


class Outside(Frozen):
    """Work of a cell outside of its own turns."""

    seconds: float
    """Processor seconds of its processes in the turns of others."""
    of_seconds: float
    """Wall time of those turns."""
    ranks: int = 1
    """Number of its ranks."""

    @property
    def too_much(self) -> bool:
        """True if the cell used more than `OUTSIDE_SHARE` for each rank, so that its times cannot be compared."""
        return self.seconds > max(OUTSIDE_SHARE * self.ranks * self.of_seconds, LEAST_DISTURBANCE_SECONDS)
