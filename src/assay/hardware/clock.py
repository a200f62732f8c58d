"""The steadiness of this machine at equal work, seen in a second and without torch."""

import statistics
import time
from collections.abc import Callable

_REPEATS = 400
_LOOPS = 20_000


def _work() -> None:
    """Do about a millisecond of arithmetic."""
    total = 0
    for number in range(_LOOPS):
        total += number * number


def jitter(work: Callable[[], object] = _work, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the 95th percentile of repeated equal work over its median, less one.

    Programs that share the machine, and clocks that change their frequency, make single repetitions longer.
    """
    spent = []
    for _ in range(_REPEATS):
        began = clock()
        work()
        spent.append(clock() - began)
    return statistics.quantiles(spent, n=20)[-1] / statistics.median(spent) - 1
