"""Branch and bound over stacks: the fastest within a budget, and what each further saving of memory costs in time.

Stacks are visited from the fastest. A stack is worth a row if it needs less than all faster ones. Two lower bounds of
its need rule out most stacks; the need of the others is that of their whole ledger. So the answer is the one that
ledgers of all stacks would give (`tests/advise/test_search.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from assay.advise.ledgers import Positions

NOTICEABLE = 0.98
"""A row needs at most this share of the memory of every faster one."""
EQUAL = 1.01
"""Stacks that take at most so many times as long as the fastest count as equally fast."""
Bound = Callable[[Positions], int]


@dataclass(frozen=True)
class Point:
    """A stack with its time and its need of memory."""

    stack: Positions
    seconds: float
    need_bytes: int


@dataclass(frozen=True)
class Bounds:
    """Need of a stack: lower bounds, from the quickest, and the exact one."""

    lower: Sequence[Bound]
    exact: Callable[[Positions, float], int | None]
    """None if a stack cannot run after all, or needs more than a limit, where that is sooner known than the need."""

    def below(self, stack: Positions, limit: float) -> int | None:
        """Return the need of a stack if it is at most `limit`, else None."""
        if any(bound(stack) > limit for bound in self.lower):
            return None
        need = self.exact(stack, limit)
        return need if need is not None and need <= limit else None


def frontier(seconds: Mapping[Positions, float], bounds: Bounds, budget: int) -> list[Point]:
    """Return the fastest stack within a budget, and each one that needs noticeably less than all faster ones."""
    found: list[Point] = []
    limit = float(budget)
    for stack in _from_the_fastest(seconds):
        need = bounds.below(stack, limit)
        if need is not None:
            found.append(Point(stack, seconds[stack], need))
            limit = NOTICEABLE * need
    return found


def quickest(seconds: Mapping[Positions, float], bounds: Bounds, budget: int) -> Positions | None:
    """Return the fastest stack within a budget; None if there is none."""
    return next((one for one in _from_the_fastest(seconds) if bounds.below(one, budget) is not None), None)


def simplest(seconds: Mapping[Positions, float], bounds: Bounds, budget: int, fastest: float) -> Point | None:
    """Return the stack with the fewest elements among those within the budget that are as good as the fastest."""
    near = [stack for stack in _from_the_fastest(seconds) if seconds[stack] <= EQUAL * fastest]
    for stack in sorted(near, key=len):
        need = bounds.below(stack, budget)
        if need is not None:
            return Point(stack, seconds[stack], need)
    return None


def smallest(stacks: Iterable[Positions], bounds: Bounds) -> tuple[Positions, int] | None:
    """Return the stack that needs the least memory, and its need; None if no stack can run.

    The stack with the lowest bound is always next: its next bound is computed, and after the last one its need. So few
    needs are computed beside the least one. Of stacks with equal needs it is the one with the lowest first bound.
    """
    first, *further = bounds.lower
    waiting = [(bound, (bound, len(stack), stack), 0) for stack in stacks for bound in (first(stack),)]
    heapify(waiting)
    found: tuple[int, tuple[int, int, Positions]] | None = None
    while waiting:
        bound, order, known = heappop(waiting)
        if found is not None and (bound, order) > found:
            break
        stack = order[2]
        if known < len(further):
            heappush(waiting, (max(bound, further[known](stack)), order, known + 1))
            continue
        need = bounds.exact(stack, float("inf") if found is None else found[0])
        if need is not None and (found is None or (need, order) < found):
            found = (need, order)
    return None if found is None else (found[1][2], found[0])


def _from_the_fastest(seconds: Mapping[Positions, float]) -> list[Positions]:
    return sorted(seconds, key=lambda stack: (seconds[stack], len(stack), stack))
