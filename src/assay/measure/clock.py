"""A clock that is always in exactly one phase, so that the named parts of a wall clock sum to the whole.

Time is kept in whole nanoseconds of the monotonic clock: `nanoseconds` sums to the elapsed time exactly, `seconds` is
the same numbers divided by 10⁹.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseClock:
    """Runs from the first `enter` on. A phase that is entered again goes on adding."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._since = 0
        self._spent: dict[str, int] = {}

    @property
    def phase(self) -> str | None:
        """The phase that time is counted to; None before the first."""
        return self._phase

    def enter(self, phase: str) -> None:
        """Leave the current phase for another."""
        now = time.perf_counter_ns()
        if self._phase is not None:
            self._spent[self._phase] += now - self._since
        self._spent.setdefault(phase, 0)
        self._phase, self._since = phase, now

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Another phase inside the current one, which is entered again afterwards. Raises before the first `enter`."""
        before = self._phase
        if before is None:
            raise RuntimeError("enter a phase before one inside it")
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def nanoseconds(self) -> dict[str, int]:
        """Elapsed until now by phase, in the order of first entry."""
        spent = dict(self._spent)
        if self._phase is not None:
            spent[self._phase] += time.perf_counter_ns() - self._since
        return spent

    def seconds(self) -> dict[str, float]:
        """Elapsed until now by phase, in the order of first entry."""
        return {phase: spent / 1e9 for phase, spent in self.nanoseconds().items()}
