"""Timing of the stacks that an answer depends on, within a budget of seconds.

First the configuration as it is, the stack that the roofline prefers, and its elements one by one. Then, as long as
time is left, all candidates are ranked anew, and the best ones that were not timed are. So time is spent on stacks that
may be the answer, and a stack that only the roofline likes is found out.
"""

import time
from collections.abc import Callable, Iterator

from assay.advise.ledgers import Positions
from assay.advise.problem import Problem, Ranking
from assay.config.home import Home
from assay.hardware import Machine
from assay.hardware.rates import known_machine
from assay.launch.step_times import calibrate

_AT_ONCE = 2
"""Front-runners that are timed before the next ranking."""
_LEAST_SECONDS = 4.0
"""Seconds that a process takes to time one stack: imports, two models, some turns."""


def calibrated(
    problem: Problem, home: Home, threads: int | None, seconds: float, tell: Callable[[str], None]
) -> Machine:
    """Time front-runners for about so many seconds, and return the machine with all times that are known.

    A stack that has begun is finished. Raises `UsageError` if nothing fits, and if `home` cannot be written.
    """
    machine, end = known_machine(home, threads), time.monotonic() + seconds
    tried: set[Positions] = set()
    while time.monotonic() + _LEAST_SECONDS < end:
        ranking = problem.rank(machine)
        first = not tried
        wanted = _first(problem, ranking) if first else _next(ranking, tried)
        new = [stack for stack in wanted if stack not in ranking.timed and stack not in tried]
        tried.update(wanted)
        if not new and not first:
            break
        runs = [problem.resolved(stack) for stack in new]
        calibrate(runs, home, threads, end - time.monotonic(), tell)
        machine = known_machine(home, threads)
    return machine


def _first(problem: Problem, ranking: Ranking) -> list[Positions]:
    """Return the bare run, the best stack, and the elements of the best stack that may run alone."""
    best = ranking.best.stack
    single = ((i,) for i in best)
    return [(), best, *(stack for stack in single if stack in problem.roofline and stack != best)]


def _next(ranking: Ranking, tried: set[Positions]) -> list[Positions]:
    """Return the most promising points that were not timed: the recommended one, and fast ones of the frontier."""
    front = [ranking.best.stack, *(point.stack for point in ranking.frontier)]
    open_ = (stack for stack in dict.fromkeys(front) if stack not in ranking.timed and stack not in tried)
    return list(_up_to(open_, _AT_ONCE))


def _up_to(stacks: Iterator[Positions], most: int) -> Iterator[Positions]:
    for _, stack in zip(range(most), stacks, strict=False):
        yield stack
