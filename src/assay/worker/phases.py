"""Phases of the measured child: its current phase, the time of each phase, and the peak memory of each.

The clock is always in exactly one phase, so the phases sum to the wall time. Entering a phase resets the process's
high-water mark, and leaving it reads the mark. A phase that is entered several times keeps the highest. The time to
record a step is not charged to its phase. It does not justify two readings of /proc, so `aside` switches only the
clock.

The clock keeps time in whole nanoseconds of the monotonic clock. `nanoseconds` sums to the elapsed time exactly;
`seconds` gives the same numbers divided by 10⁹.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from assay.instruments.memory.resident_memory import read, reset_peak
from assay.records.prediction import PhaseMemory, highest
from assay.worker.processes.channel import Channel


class PhaseClock:
    """Runs from the first `enter`. Entering a phase again adds to its time."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._since = 0
        self._spent: dict[str, int] = {}

    @property
    def phase(self) -> str | None:
        """The current phase; None before the first `enter`."""
        return self._phase

    def enter(self, phase: str) -> None:
        """End the current phase and begin another."""
        now = time.perf_counter_ns()
        if self._phase is not None:
            self._spent[self._phase] += now - self._since
        self._spent.setdefault(phase, 0)
        self._phase, self._since = phase, now

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Interrupt the current phase by another, then resume it. Raises `RuntimeError` before the first `enter`."""
        before = self._phase
        if before is None:
            raise RuntimeError("no phase was entered yet that another could interrupt")
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def nanoseconds(self) -> dict[str, int]:
        """Nanoseconds spent so far by phase, in the order of first entry."""
        spent = dict(self._spent)
        if self._phase is not None:
            spent[self._phase] += time.perf_counter_ns() - self._since
        return spent

    def seconds(self) -> dict[str, float]:
        """Seconds spent so far by phase, in the order of first entry."""
        return {phase: spent / 1e9 for phase, spent in self.nanoseconds().items()}


_PROGRESS_SECONDS = 0.5


class Phases:
    """The child's time and memory by phase."""

    def __init__(self, channel: Channel, first: str, seconds_before: float) -> None:
        self.current = first
        self.memory: dict[str, PhaseMemory] = {}
        self.held_peaks: list[tuple[str, int]] = []
        """(phase, peak resident memory without file pages) of each time a phase was left, in order."""
        self.tensors_peak: Callable[[], int | None] = lambda: None
        """Peak bytes of tensors on the device since the last call; None if the device does not count them."""
        self._channel = channel
        self._first = first
        self._seconds_before = seconds_before
        self._told = 0.0
        self._clock = PhaseClock()
        self._clock.enter(first)
        reset_peak()

    def enter(self, phase: str) -> None:
        """Leave the current phase and enter another."""
        self._clock.enter("recording")
        self._read()
        self.current = phase
        self._channel.event("phase", name=phase)
        reset_peak()
        self._clock.enter(phase)

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Enter another phase for the block, then return to the current one."""
        before = self.current
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def progressed(self, done: int, total: int) -> None:
        """Report how many parts of the current phase are done, at most twice a second; a total of 0 is unknown."""
        now = time.monotonic()
        if now - self._told >= _PROGRESS_SECONDS:
            self._told = now
            with self.aside():
                self._channel.event("progress", done=done, total=total)

    def aside(self, name: str = "recording") -> AbstractContextManager[None]:
        """Charge the block's time to the clock phase `name` instead of the current one."""
        return self._clock.during(name)

    def seconds(self) -> dict[str, float]:
        """Seconds in each phase since the process began; time before this object existed belongs to the first phase."""
        seconds = dict(self._clock.seconds())
        seconds[self._first] = seconds.get(self._first, 0.0) + self._seconds_before
        return seconds

    def _read(self) -> None:
        now, before = read(), self.memory.get(self.current, PhaseMemory())
        found = before.model_copy(
            update={"tensors_peak_bytes": highest((self.tensors_peak(), before.tensors_peak_bytes))}
        )
        if now is not None:
            self.held_peaks.append((self.current, now.held_peak_bytes))
            peak = highest((now.peak_bytes, before.process_peak_bytes))
            held = {"anonymous_bytes": now.anonymous_bytes, "file_bytes": now.file_bytes}
            found = found.model_copy(update={"process_peak_bytes": peak, **held})
        self.memory[self.current] = found
