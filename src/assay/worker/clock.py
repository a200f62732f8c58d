"""A clock that is always in exactly one phase, so that its phases sum to the elapsed wall time.

Time is kept in whole nanoseconds of the monotonic clock. `nanoseconds` sums to the elapsed time exactly; `seconds`
gives the same numbers divided by 10⁹.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager


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
