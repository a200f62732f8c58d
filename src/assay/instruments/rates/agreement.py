"""Timing by repeated trials: the fastest counts, once a second trial confirms it.

A trial may be too slow because the machine was busy, but it cannot be too fast, so the fastest counts. A time that no
second trial confirms is not trusted. Trials are repeated until the two fastest differ by at most a tenth.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from assay.instruments.rates.machine_load import own_seconds

_DIFFERENCE = 0.1
_LEAST, _MOST = 3, 30
"""Number of trials. The maximum is exceeded only while the allowed time lasts."""


class Agreed(NamedTuple):
    """The fastest trial."""

    seconds: float
    confirmed: bool
    """True if a second trial agrees with it."""


def repeat_trial(trial: Callable[[], float], seconds: float = 0.0) -> Agreed:
    """Repeat `trial`, which returns its seconds, for at least `seconds` and until the two fastest agree.

    If they never agree, stop after 30 trials, unconfirmed.
    """
    found: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        found = sorted((*found, trial()))
        confirmed = len(found) >= _LEAST and found[1] <= found[0] * (1 + _DIFFERENCE)
        if time.perf_counter() >= end and (confirmed or len(found) >= _MOST):
            return Agreed(found[0], confirmed)


class OthersShare:
    """Context that measures the share of all cores used by other programs and by other guests of the host.

    `share` is set when the context exits; None: unknown.
    """

    def __enter__(self) -> "OthersShare":
        self._begun = _processor_seconds()
        self.share: float | None = None
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, wall = (after - before for after, before in zip(_processor_seconds(), self._begun, strict=True))
        cores = psutil.cpu_count() or 1
        self.share = min(1.0, max(0.0, (busy - own) / (wall * cores))) if wall > 0 else None


def _processor_seconds() -> tuple[float, float, float]:
    """Seconds so far: busy on all cores, with stolen time; used by this process and its descendants; wall clock."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names), own_seconds(), time.perf_counter()
