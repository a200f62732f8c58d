"""Trials of stacks that an answer depends on: timed here, within a budget of seconds, or run on an absent GPU.

First the configuration as it is, then each technique alone that a roofline expects to be faster, for at most half of
the time. Then the search climbs. The next stack is a neighbour of the fastest timed one: it has one technique more, one
less, or another one in place of one. So it is known which two techniques hinder each other. If no neighbour promises
anything, it is the stack that all times so far make the best one. Of several, the one that promises most for each
second of timing is taken. Its promise is the expected improvement of the logarithm of time (Jones, Schonlau and Welch
1998). It is large for a stack that is predicted as fast, or whose time is uncertain. Stacks that compile take longest
to time, so the rest is known before one of them is timed. One is timed while there is time for it.

For an absent GPU, torch's CUDA build runs a step of the recommended stack, and it fits there or is not advised. That
needs a CUDA build of torch in the environment (`launch.gpu_peak`). Where there is none, or the step cannot run there,
the ledger decides, and the answer says so.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, log
from statistics import NormalDist

from assay.absent.gpus import ABSENT
from assay.advise.ledgers import Positions
from assay.advise.problem import Problem, Ranking
from assay.config.home import Home
from assay.errors import UsageError
from assay.hardware import Machine
from assay.hardware.rates import known_machine
from assay.launch.gpu_peak import refusal, run_on_absent_gpu
from assay.launch.step_times import Stopwatch, stack_of
from assay.units import format_bytes

_TURNS_SECONDS = 1.5
"""Seconds of the turns of one stack."""
_LEAST_GAIN = 0.005
"""Expected improvement of the logarithm of time below which a stack is not worth timing."""
_PLAIN_SECONDS, _COMPILED_SECONDS = 3.0, 25.0
"""Seconds that it takes to time a stack without and with a compiler, until the first one was timed."""
_ONE = NormalDist()
_TRIES = 4
"""Stacks that an absent GPU may refuse, before the ledger decides on the next one."""
_SECONDS = 120.0
"""Time of a step there, most of it for a compiler; if it takes longer, the ledger decides."""
LEDGER = "the ledger of the step"


def time_stacks(
    problem: Problem, home: Home, threads: int | None, seconds: float, tell: Callable[[str], None]
) -> Machine:
    """Time promising stacks for about so many seconds, and return the machine with all times that are known.

    A stack that has begun is finished. Raises `UsageError` if nothing fits, and if `home` cannot be written.
    """
    machine, end = known_machine(home, threads), time.monotonic() + seconds
    search = _Search(problem, seconds)
    with Stopwatch(home, threads) as stopwatch:
        while (left := end - time.monotonic()) > 0:
            stack = search.following(problem.rank(machine), left)
            if stack is None:
                break
            began = time.monotonic()
            _, runs = stopwatch.sorted_out([problem.resolved(stack)])
            for run in runs:
                tell(f"timing steps of few blocks, {left:.0f} s left: {stack_of(run)}")
                stopwatch.time(run, _TURNS_SECONDS)
            search.took(stack, time.monotonic() - began)
            machine = known_machine(home, threads)
    return machine


class _Search:
    """A search knows what was tried, and how long it took."""

    def __init__(self, problem: Problem, seconds: float) -> None:
        self._problem, self._seconds = problem, seconds
        self._tried: set[Positions] = set()
        self._cost = {False: _PLAIN_SECONDS, True: _COMPILED_SECONDS}
        times, alone = problem.roofline, ((i,) for i in range(len(problem.found)))
        self._alone = [one for one in alone if times.get(one, inf) < times[()] and not self._compiled(one)]
        """Techniques that a roofline expects to be faster, each alone."""

    def took(self, stack: Positions, seconds: float) -> None:
        """Note that a stack was tried, and how many seconds that took."""
        self._tried.add(stack)
        if stack:  # the first one also waited for the process to start
            self._cost[self._compiled(stack)] = seconds

    def following(self, ranking: Ranking, left: float) -> Positions | None:
        """Return the stack to be timed next, with so many seconds left; None if no further one is worth it."""
        if self._new((), ranking):
            return ()
        alone = self._promising(self._alone, ranking, ()) if () in ranking.timed and left > self._seconds / 2 else {}
        if alone:
            return max(alone, key=alone.__getitem__)
        fitting = [stack for stack in ranking.timed if self._problem.fits(stack)]
        if not fitting:
            return ranking.best.stack if self._new(ranking.best.stack, ranking) else None
        fastest = min(fitting, key=ranking.seconds.__getitem__)
        near = self._promising(self._problem.neighbours(fastest), ranking, fastest)
        gains = near or self._promising((ranking.best.stack,), ranking, fastest)
        return self._choice({self._plain_first(stack, ranking): gain for stack, gain in gains.items()}, left)

    def _promising(self, stacks: Iterable[Positions], ranking: Ranking, over: Positions) -> dict[Positions, float]:
        """Return the expected improvements over a timed stack by those that were not tried, if they are worth it."""
        new = (stack for stack in stacks if self._new(stack, ranking))
        gains = {stack: improvement(ranking, over, stack) for stack in new}
        return {stack: gain for stack, gain in gains.items() if gain >= _LEAST_GAIN and self._problem.fits(stack)}

    def _choice(self, gains: dict[Positions, float], left: float) -> Positions | None:
        """Return the stack that promises most for a second; the one that promises most if there is no later."""
        costs = {stack: self._cost[self._compiled(stack)] for stack in gains}
        within = [stack for stack in gains if costs[stack] <= left]
        if not within:
            return None
        most = max(within, key=gains.__getitem__)
        first = max(within, key=lambda stack: gains[stack] / costs[stack])
        return first if costs[first] + costs[most] <= left else most

    def _plain_first(self, stack: Positions, ranking: Ranking) -> Positions:
        """Return a stack without what compiles if that was not tried, else the stack itself."""
        plain = tuple(i for i in stack if not self._problem.found[i].one.compiles)
        return plain if plain in self._problem.roofline and self._new(plain, ranking) else stack

    def _new(self, stack: Positions, ranking: Ranking) -> bool:
        return stack not in ranking.timed and stack not in self._tried

    def _compiled(self, stack: Positions) -> bool:
        return any(one.one.compiles for one in self._problem.named(stack))


def improvement(ranking: Ranking, fastest: Positions, stack: Positions) -> float:
    """Return the expected improvement of the logarithm of time by a stack over the fastest one, 0 or more.

    The logarithm of its time is normal, with half of the 95 % interval as its margin.
    """
    error = ranking.margins[stack] / _ONE.inv_cdf(0.975)
    gap = log(ranking.seconds[fastest] / ranking.seconds[stack])
    return gap * _ONE.cdf(gap / error) + error * _ONE.pdf(gap / error)


@dataclass(frozen=True)
class Checked:
    """A ranking, and what decided that its best stack fits."""

    ranking: Ranking
    by: str


def check_ranking(problem: Problem, rank: Callable[[], Ranking], device: str, tell: Callable[[str], None]) -> Checked:
    """Return the ranking whose best stack an absent GPU holds. Raises `UsageError` if nothing fits.

    Stacks that do not fit there are excluded from the problem, and ranked no more.
    """
    ranking = rank()
    why = _impossible(problem, device)
    for _ in range(_TRIES):
        if why:
            break
        try:
            tell("the recommended stack runs on an absent GPU, with torch's CUDA build")
            found = run_on_absent_gpu(
                problem.resolved(ranking.best.stack), device, tell, _SECONDS, batch=None, largest=False
            )
        except UsageError as reason:
            why = str(reason)
            break
        low, high = found.in_use_bytes
        if not found.exhausted and high <= problem.limits.budget_bytes:
            amounts = f"{format_bytes(low)} to {format_bytes(high)} in use"
            return Checked(ranking, f"running it on an absent GPU, with torch {found.torch}: {amounts}")
        problem.exclude(ranking.best.stack)
        ranking = rank()
    return Checked(ranking, f"{LEDGER}; it ran on no absent GPU{f': {why}' if why else ''}")


def _impossible(problem: Problem, device: str) -> str:
    """Return why no stack of a problem can run on an absent GPU here; empty if it can."""
    if device.lower() not in ABSENT:
        return f"{device} is none of {', '.join(ABSENT)}"
    if problem.limits.of != "device":
        return f"the budget is of {problem.limits.of}"
    return refusal() or ""
