"""A search for the best stack of one run on one machine: its candidates, their times, and their needs of memory.

Times are rooflines, or by kernels on an absent GPU, until steps were timed (`trials`). Then a correction brings all to
one scale. Needs do not depend on times, so each ledger is computed once for all rankings.

A roofline is a common factor too fast on small shapes, and wrong for some techniques and for some pairs. So the
logarithm of measured over roofline time is modelled as a sum. It has a constant, a term for each technique of a stack,
and one for each pair, all normal with mean zero. The covariance of two stacks then depends only on the number m of
elements that both have: a² + b²·m + c²·m(m−1)/2. The posterior of this Gaussian process is in closed form (Rasmussen
and Williams 2006, algorithm 2.1). A stack that was timed has its own time. One that resembles timed stacks has a small
error, and one with nothing in common has the prior's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log
from typing import TYPE_CHECKING, Any

from assay.advise.advice import Choice
from assay.advise.elements import Compatible, Element, Stack, elements, stack_text, with_stack
from assay.advise.evidence import Losses, added_loss, keeps, must_earn, numerics
from assay.advise.ledgers import Ledgers, Positions
from assay.advise.search import NOTICEABLE, Bounds, Point, frontier, quickest, simplest, smallest
from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.estimator.capacity import peak_bytes
from assay.estimator.estimate import estimate
from assay.estimator.memory_fit import batch_of
from assay.estimator.timing.gpu_time import OTHER_MARGIN, speeds_for
from assay.estimator.timing.step_time import StepTime, digests, error_factor, spread_of
from assay.hardware import Machine
from assay.hardware.step_times import StepTimes
from assay.optimizations import Optimization, check, optimizations_of
from assay.units import format_bytes

if TYPE_CHECKING:
    import numpy as np

COMMON, ELEMENT, PAIR, NOISE = 1.0, 0.3, 0.2, 0.04
"""Standard deviations of logarithms: the common factor, a technique, a pair, a measurement.

A factor of three is usual for the first. Fused attention in bfloat16 was 0.6 off on a CPU, which is a large pair.
"""


@dataclass(frozen=True)
class Corrected:
    """Time of a stack from its roofline and timed stacks."""

    seconds: float
    margin: float
    """Half of the 95 % interval of the logarithm."""


def correct_times(
    roofline: Mapping[Positions, float], measured: Mapping[Positions, float], elements: int
) -> dict[Positions, Corrected]:
    """Return the time of each stack, given roofline and measured seconds; `elements` is the number of positions."""
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve

    stacks, timed = list(roofline), [stack for stack in measured if stack in roofline]
    x, known = _indicators(stacks, elements), _indicators(timed, elements)
    offsets = np.array([log(measured[one] / roofline[one]) for one in timed])
    factor = cho_factor(_covariance(known, known) + NOISE**2 * np.eye(len(timed)))
    cross = _covariance(x, known)
    mean = cross @ cho_solve(factor, offsets)
    sizes = x.sum(axis=1)
    prior = COMMON**2 + ELEMENT**2 * sizes + PAIR**2 * sizes * (sizes - 1) / 2
    spread = np.sqrt(np.maximum(prior - (cross * cho_solve(factor, cross.T).T).sum(axis=1), 0.0) + NOISE**2)
    return {
        stack: Corrected(roofline[stack] * float(np.exp(one)), 1.96 * float(error))
        for stack, one, error in zip(stacks, mean, spread, strict=True)
    }


def _indicators(stacks: Sequence[Positions], elements: int) -> "np.ndarray[Any, Any]":
    import numpy as np

    found = np.zeros((len(stacks), elements))
    for row, stack in enumerate(stacks):
        found[row, list(stack)] = 1.0
    return found


def _covariance(left: "np.ndarray[Any, Any]", right: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    common = left @ right.T
    found: np.ndarray[Any, Any] = COMMON**2 + ELEMENT**2 * common + PAIR**2 * common * (common - 1) / 2
    return found


@dataclass(frozen=True)
class Limits:
    """Limits of an answer."""

    budget_bytes: int
    of: str = "tensors"
    loss_change: float | None = None
    """Largest change of the loss, as a fraction; None: any that a lossy technique makes."""
    losses: Losses | None = None
    """Measured changes of the loss."""


@dataclass(frozen=True)
class Ranking:
    """Times of all candidates, and the points that they lead to."""

    seconds: dict[Positions, float]
    margins: dict[Positions, float]
    """Margins of the times; empty if the errors of such rooflines were never measured."""
    timed: frozenset[Positions]
    frontier: list[Point]
    best: Point
    """The recommended stack."""
    unearned: tuple[int, ...]
    """Elements of the fastest stack that round the optimizer's state, and did not earn it."""
    under_load: bool
    """True if other programs used the machine while stacks were timed."""


class Problem:
    """Candidates for one run on one machine; `serves` tells which techniques may be part of one.

    Raises `UsageError` if the rates of the machine are not known, or the need of the run itself is not.
    """

    def __init__(
        self,
        run: ResolvedRun,
        machine: Machine,
        limits: Limits,
        serves: Callable[[Optimization], bool] = lambda technique: True,
    ) -> None:
        self.run, self.machine, self.limits = run, machine, limits
        rates = machine.rates.get(machine.device(run.device))
        if rates is None:
            raise UsageError("the rates of this machine are not known; run `assay machine` first")
        known, self.different = elements(run, machine)
        able = tuple(one for one in known if serves(one.one))
        self.kept_out = tuple(one for one in known if one not in able)
        losses = limits.losses or {}
        reasons = [(one, one.one.unadvised(run, machine)) for one in able]
        self.unadvised = tuple((one, why) for one, why in reasons if why)
        able = tuple(one for one, why in reasons if not why)
        self.unseen = tuple(one for one in able if one.one.unseen)
        self.refused = tuple(one for one in able if not keeps((one,), losses, limits.loss_change))
        self.found = tuple(one for one in able if one not in self.unseen and one not in self.refused)
        self.ledgers = Ledgers(run, machine, self.found, rates, limits.of)
        self.candidates = 0
        self._needs: dict[Positions, int] = {(): peak_bytes(run, machine, limits.of)}
        self._excluded: set[Positions] = set()

    @cached_property
    def roofline(self) -> dict[Positions, float]:
        """Seconds of each candidate with a ledger of its own."""
        compatible = Compatible(self.run, self.machine, self.found)
        needed = {i for i in range(len(self.found)) for offers in compatible.wanted for one in offers if one >> i & 1}
        idle = self.ledgers.idle - needed
        limit, found = self.limits.loss_change, dict[Positions, float]()
        changes = [added_loss(one.one, self.limits.losses or {}, limit or 0.0) for one in self.found]
        for stack in compatible.stacks():
            # With a limit, elements that may change the loss by more are not among those that are searched.
            if limit is not None and sum([changes[i] or 0.0 for i in stack]) > limit:
                continue
            self.candidates += 1
            seconds = None if not idle.isdisjoint(stack) else self.ledgers.seconds(stack)
            if seconds is not None:
                found[stack] = seconds
        return found

    @property
    def roofline_margin(self) -> float | None:
        """Half of the interval of an untimed step's logarithm; None if such were never held against measured ones."""
        if speeds_for(self.ledgers.rates) is not None:
            return OTHER_MARGIN
        factor = error_factor(self.ledgers.rates)
        return None if factor is None else log(factor)

    @property
    def replayed(self) -> int:
        """Number of candidates whose whole ledger was computed."""
        return len(self._needs)

    def named(self, stack: Positions) -> tuple[Element, ...]:
        """Return the elements at some positions."""
        return tuple(self.found[i] for i in stack)

    def resolved(self, stack: Positions) -> ResolvedRun:
        """Return the run with a stack."""
        return with_stack(self.run, self.named(stack))

    def need(self, stack: Positions, limit_bytes: float = inf) -> int | None:
        """Return the need of a stack by its whole ledger; None if it cannot run after all.

        It is None too if it is above a limit, where that is sooner known, and for an excluded stack.
        """
        if stack in self._excluded:
            return None
        if stack in self._needs:
            return self._needs[stack]
        run = self.resolved(stack)
        try:
            if self.limits.of == "device" and run.ranks == 1:
                check(run, self.machine)
                found = self.ledgers.device_bytes(stack, limit_bytes)
            else:
                found = peak_bytes(run, self.machine, self.limits.of)
        except UsageError:
            found = None
        if found is not None:
            self._needs[stack] = found
        return found

    def exclude(self, stack: Positions) -> None:
        """Leave a stack out of all later rankings, because it was tried and does not fit."""
        self._excluded.add(stack)

    @property
    def bounds(self) -> Bounds:
        """Bounds of the needs."""
        return Bounds((self.ledgers.quick_bytes, self.ledgers.least_bytes), self.need)

    @cached_property
    def _by_digest(self) -> dict[str, Positions]:
        """Candidates by the digest of their step times."""
        digest = digests(self.run, self.machine.device(self.run.device))
        given = [((one.stage, one.name()), one.spec()) for one in optimizations_of(self.run)]
        added = [(one.order, one.one.spec()) for one in self.found]
        found = {}
        for stack in self.roofline:
            whole = sorted([*given, *(added[i] for i in stack)], key=lambda each: each[0])
            found[digest(spec for _, spec in whole)] = stack
        return found

    def timed(self, machine: Machine) -> dict[Positions, StepTimes]:
        """Return the candidates whose steps were timed on a machine."""
        if not machine.step_times or self.run.ranks > 1:
            return {}
        known = ((self._by_digest.get(key), times) for key, times in machine.step_times.items())
        layers = self.run.model.n_layer
        return {stack: times for stack, times in known if stack is not None and times.serves(layers)}

    def neighbours(self, stack: Positions) -> Iterator[Positions]:
        """Yield the candidates with one element more, with one less, and with another one in place of one."""
        fewer = [stack[:i] + stack[i + 1 :] for i in range(len(stack))]
        others = [i for i in range(len(self.found)) if i not in stack]
        more = (tuple(sorted((*one, i))) for one in (stack, *fewer) for i in others)
        yield from (one for one in (*fewer, *more) if one in self.roofline)

    def fits(self, stack: Positions) -> bool:
        """True if the step of a stack stays within the budget."""
        return self.bounds.below(stack, self.limits.budget_bytes) is not None

    def rank(self, machine: Machine, *, of_timed: bool = False) -> Ranking:
        """Return the times of all candidates by what was timed on a machine, and the best stacks within the budget.

        With `of_timed` the best stack is one that was timed, if one of those is within the budget. Raises `NothingFits`
        with the smallest budget that would do.
        """
        layers, timed = self.run.model.n_layer, self.timed(machine)
        margin = self.roofline_margin
        seconds, margins = dict(self.roofline), {} if margin is None else dict.fromkeys(self.roofline, margin)
        if timed:
            measured = {stack: times.seconds(layers) for stack, times in timed.items()}
            right = correct_times(self.roofline, measured, len(self.found))
            seconds = {stack: one.seconds for stack, one in right.items()} | measured
            margins = {stack: one.margin for stack, one in right.items()}
            margins |= {stack: times.margin(layers) for stack, times in timed.items()}
        points = frontier(seconds, self.bounds, self.limits.budget_bytes)
        tried = {stack: seconds[stack] for stack in timed if self.fits(stack)} if of_timed else {}
        best, unearned = self._best(tried or seconds, margins)
        if best is None:
            raise self._too_small()
        busy = any(times.under_load for times in timed.values())
        return Ranking(seconds, margins, frozenset(timed), points, best, unearned, busy)

    def _best(
        self, seconds: dict[Positions, float], margins: dict[Positions, float]
    ) -> tuple[Point | None, tuple[int, ...]]:
        """Return the simplest of the fastest stacks, and the elements of a faster one that did not earn their place.

        An element that rounds the optimizer's state earns it if nothing fits without such elements, or if the gain of
        time exceeds the margin.
        """
        earning = {i for i, one in enumerate(self.found) if must_earn(one.one)}
        plain = {stack: time for stack, time in seconds.items() if earning.isdisjoint(stack)}
        first, kept = (quickest(times, self.bounds, self.limits.budget_bytes) for times in (seconds, plain))
        if first is None:
            return None, ()
        unearned: tuple[int, ...] = ()
        if kept is not None and not earning.isdisjoint(first):
            low, _ = spread_of(margins[kept]) if kept in margins else (0.0, 0.0)
            if seconds[first] >= low * seconds[kept]:
                unearned = tuple(sorted(earning & set(first)))
        choices, fastest = (plain, kept) if unearned and kept is not None else (seconds, first)
        return simplest(choices, self.bounds, self.limits.budget_bytes, seconds[fastest]), unearned

    def choice(self, stack: Positions, ranking: Ranking) -> Choice | None:
        """Return a stack with its figures; None if it is no candidate or cannot run."""
        need = self.need(stack) if stack in ranking.seconds else None
        if need is None:
            return None
        whole = self._of_sheet(stack)
        return Choice(
            stack=tuple(map(str, self.named(stack))),
            seconds=ranking.seconds[stack] if whole is None else whole.seconds,
            margin=ranking.margins.get(stack) if whole is None else whole.margin,
            timed=stack in ranking.timed,
            batch=batch_of(self.resolved(stack)),
            tokens=self.run.tokens_per_step,
            need_bytes=need,
            numerics=numerics(self.named(stack)),
            fits=need <= self.limits.budget_bytes,
        )

    def _of_sheet(self, stack: Positions) -> StepTime | None:
        """Return the time of a step on a GPU of a datasheet as `assay estimate` predicts it; None on other devices.

        A search adds up the work of parts, and leaves out what the host does after a wait.
        """
        if speeds_for(self.ledgers.rates) is None or self.run.ranks > 1:
            return None
        return estimate(self.resolved(stack), self.machine).step_time

    def _too_small(self) -> "NothingFits":
        # Hundreds of stacks need nearly as much as the smallest, and their whole ledgers take seconds.
        bounds = replace(self.bounds, lower=(*self.bounds.lower, self.ledgers.deep_bytes))
        least = smallest(self.roofline, bounds)
        if least is None:
            return NothingFits("no stack of this run can be predicted, so nothing can be recommended")
        stack, need = least
        why = (
            f"nothing that leaves the training as it is, in a known time, fits into "
            f"{format_bytes(self.limits.budget_bytes)}; the smallest budget that would do is {need} bytes "
            f"({format_bytes(need)}), with {stack_text(self.named(stack)) or 'no technique'}"
        )
        others = tuple(self._others(self.named(stack), need))
        if not others:
            return NothingFits(why)
        needs = " or ".join(f"{format_bytes(each)} ({added})" for _, each, added in others)
        return NothingFits(f"{why}; others need {needs}", stack_text(others[0][0]))

    def _others(self, smallest_stack: Stack, need: int) -> Iterator[tuple[Stack, int, str]]:
        """Yield stacks with what trains differently or is left out, their needs, and what each adds to the smallest.

        The first needs least. The second has another technique, and is told only if it fits.
        """
        out = (*self.different, *(one for one, _ in self.unadvised), *self.refused, *self.unseen)
        first = self._slimmed(smallest_stack, need, out)
        if first is None:
            return
        yield first
        added = first[2].partition("+")[0].partition(":")[0]
        second = self._slimmed(smallest_stack, need, tuple(one for one in out if one.one.name() != added))
        if second is not None and second[1] <= self.limits.budget_bytes:
            yield second

    def _slimmed(self, stack: Stack, need: int, out: Stack) -> tuple[Stack, int, str] | None:
        """Return a stack with the one or two elements that spare most, until it fits; None if none spares anything."""
        added: tuple[str, ...] = ()
        for place in range(_ADDED):
            pool = (*out, *self.found) if place else out
            tried = [(each, one) for one in pool if (each := self._need_with(stack, one)) is not None]
            least, one = min(tried, key=lambda pair: pair[0], default=(need, None))
            if one is None or least > NOTICEABLE * need:
                break
            stack, need, added = self._joined(stack, one), least, (*added, str(one))
            if need <= self.limits.budget_bytes:
                break
        return (stack, need, "+".join(added)) if added else None

    def _need_with(self, stack: Stack, one: Element) -> int | None:
        """Return the need of a stack with one more element; None if it cannot run so, or has the technique."""
        if any(each.one.name() == one.one.name() for each in stack):
            return None
        try:
            return peak_bytes(with_stack(self.run, self._joined(stack, one)), self.machine, self.limits.of)
        except UsageError:
            return None

    def _joined(self, stack: Stack, one: Element) -> Stack:
        """Return a stack with an element in place of those that it cannot be combined with."""
        against = Compatible(self.run, self.machine, (*stack, one)).against[len(stack)]
        kept = (each for i, each in enumerate(stack) if not against >> i & 1)
        return tuple(sorted((*kept, one), key=lambda each: each.order))


_ADDED = 2
"""Most elements that are added to the smallest stack, if that trains differently."""


class NothingFits(UsageError):
    """Nothing fits; `other` is a smaller stack that trains differently, as a user writes it, or empty."""

    def __init__(self, sentence: str, other: str = "") -> None:
        super().__init__(sentence)
        self.other = other
