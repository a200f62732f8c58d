"""A time in which two trials agree: the fastest of several, once another one confirms it.

One trial may be slow because the machine did something else, and one that is too fast cannot be: so the fastest counts,
but a figure that nothing confirms is no figure. Trials go on until the two fastest differ by less than a tenth.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

_DIFFERENCE = 0.1
_LEAST, _MOST = 3, 30
"""Trials. More than the most only where the time allowed is not over."""


class Agreed(NamedTuple):
    """The fastest trial."""

    seconds: float
    confirmed: bool
    """Whether a second one came close to it."""


def agreed(trial: Callable[[], float], seconds: float = 0.0) -> Agreed:
    """Repeat `trial`, which returns its seconds, for at least `seconds` and until the two fastest agree."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        found = sorted((*found, trial()))
        confirmed = len(found) >= _LEAST and found[1] <= found[0] * (1 + _DIFFERENCE)
        if time.perf_counter() >= end and (confirmed or len(found) >= _MOST):
            return Agreed(found[0], confirmed)


class OthersShare:
    """A context that learns which share of all cores others had: other programs, and other guests of the host."""

    def __enter__(self) -> "OthersShare":
        self._begun = _processor_seconds()
        self.share: float | None = None
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, wall = (after - before for after, before in zip(_processor_seconds(), self._begun, strict=True))
        cores = psutil.cpu_count() or 1
        self.share = min(1.0, max(0.0, (busy - own) / (wall * cores))) if wall > 0 else None


def _processor_seconds() -> tuple[float, float, float]:
    """So far: of all programs on all cores with what the host gave to others, of this process, and by the clock."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names), time.process_time(), time.perf_counter()
