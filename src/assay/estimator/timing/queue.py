"""A device's queue: the host launches kernels one after the other, and the device runs them in the same order.

The host goes on as soon as a kernel is queued. A kernel begins when it is queued and the one before it has ended.
Where the host waits, it goes on when all that is queued has ended. So a step takes as long as the slower of both, and
what the host does after a wait is added.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Queued(NamedTuple):
    """One launch."""

    host: float
    """Seconds of the host until it is queued."""
    device: float
    """Seconds of its kernel; 0: it has none."""
    waits: bool = False
    """True if the host then waits for the device."""


WAIT = Queued(0.0, 0.0, waits=True)
"""The host reads a number."""


class PlayedQueue(NamedTuple):
    """A queue that has been played."""

    seconds: float
    """Seconds until host and device have ended."""
    host: float
    """Seconds in which the host launched."""
    device: float
    """Seconds in which the device worked."""


def play(queue: Iterable[Queued]) -> PlayedQueue:
    """Play a queue on an idle device."""
    host = device = launching = working = 0.0
    for launch, kernel, waits in queue:  # a step of a deep model has tens of thousands of launches
        host += launch
        launching += launch
        if kernel:
            device = (device if device > host else host) + kernel
            working += kernel
        if waits and device > host:
            host = device
    return PlayedQueue(max(host, device), launching, working)


def play_repeated(queue: Iterable[Queued], times: int) -> PlayedQueue:
    """Play a queue without waits so many times in a row, and wait once at the end, in the time of playing it once.

    A round ends when the device has run its kernels after those of the round before. It ends no earlier than on an
    idle device that begins with the host.
    """
    host = working = alone = 0.0
    for launch, kernel, _ in queue:
        host += launch
        if kernel:
            alone = (alone if alone > host else host) + kernel
            working += kernel
    ended = 0.0
    for number in range(times):
        ended = max(ended + working, number * host + alone)
    return PlayedQueue(max(times * host, ended), times * host, times * working)
