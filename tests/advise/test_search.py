"""The search answers what the whole ledgers of all stacks answer, and its bounds never exceed them."""

from functools import cache

import pytest

from assay.advise.elements import Compatible
from assay.advise.ledgers import Positions
from assay.advise.problem import Problem
from assay.advise.search import EQUAL, NOTICEABLE, Bounds, frontier, simplest, smallest
from assay.errors import UsageError
from assay.estimator import estimate
from assay.estimator.capacity import peak_bytes
from assay.estimator.device_memory import need_of
from support.advice import HERE, THERE, restricted

NAMES = {
    *("chunked_cross_entropy", "sdpa_attention", "bf16_mixed", "bf16_full", "activation_checkpointing"),
    *("selective_checkpointing", "fused_adamw", "adamw_bf16_state", "gradient_accumulation", "loader_workers"),
}


@cache
def _all() -> tuple[Problem, dict[Positions, tuple[float, int]]]:
    """Return a problem, and the roofline seconds and the need of each of its stacks by whole ledgers."""
    problem, found = restricted(NAMES), {}
    for stack in Compatible(problem.run, HERE, problem.found).stacks():
        run = problem.resolved(stack)
        whole = estimate(run, HERE)
        if whole.roofline_seconds is not None:
            found[stack] = (whole.roofline_seconds, need_of("tensors")(whole))
    return problem, found


def test_bounds_never_exceed_the_need_and_times_are_those_of_whole_ledgers() -> None:
    problem, every = _all()
    assert len(every) >= 500
    for stack, (seconds, need) in every.items():
        busy = tuple(i for i in stack if i not in problem.ledgers.idle)
        assert problem.ledgers.quick_bytes(busy) <= problem.ledgers.least_bytes(busy) <= need
        assert problem.ledgers.seconds(busy) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05])
def test_the_answer_is_that_of_brute_force(share: float) -> None:
    problem, every = _all()
    needs = [need for _, need in every.values()]
    budget = min(needs) + int(share * (max(needs) - min(needs)))
    points = frontier(problem.roofline, problem.bounds, budget)
    expected = _frontier(every, budget)
    assert [point.stack for point in points] == [stack for stack, _ in expected]
    assert [point.need_bytes for point in points] == [need for _, need in expected]
    best = simplest(problem.roofline, problem.bounds, budget, points[0].seconds)
    near = [s for s, (t, n) in every.items() if n <= budget and t <= EQUAL * points[0].seconds]
    assert best is not None
    assert best.stack == min(near, key=lambda s: (len(s), every[s][0], s))
    assert problem.replayed < len(every) / 4


def _frontier(every: dict[Positions, tuple[float, int]], budget: int) -> list[tuple[Positions, int]]:
    found, limit = [], float(budget)
    # Rounding of the line through two depths is far below the smallest difference of two times.
    for stack in sorted(every, key=lambda s: (round(every[s][0], 12), len(s), s)):
        need = every[stack][1]
        if need <= limit:
            found.append((stack, need))
            limit = NOTICEABLE * need
    return found


def test_on_a_device_the_answer_is_that_of_brute_force_with_few_whole_simulations() -> None:
    names = {"sdpa_attention", "bf16_mixed", "activation_checkpointing", "fused_adamw", "foreach_adamw", "cuda_graphs"}
    problem, plain = restricted(names, of="device"), restricted(names, of="device")
    needs = {}
    for stack in plain.roofline:
        try:
            needs[stack] = peak_bytes(plain.resolved(stack), THERE, "device")
        except UsageError:  # the pool of captured graphs is not predicted
            assert plain.need(stack) is None
    assert len(needs) >= 20
    for stack, need in needs.items():
        assert problem.ledgers.least_bytes(stack) <= need
        assert problem.ledgers.deep_bytes(stack) <= need
        assert problem.ledgers.device_bytes(stack, need) == need
        assert problem.ledgers.device_bytes(stack, need - 1) is None
    budget = max(needs.values())
    points = frontier(problem.roofline, problem.bounds, budget)
    every = {stack: (seconds, needs[stack]) for stack, seconds in plain.roofline.items() if stack in needs}
    assert [(point.stack, point.need_bytes) for point in points] == _frontier(every, budget)
    assert problem.replayed < len(needs) / 2


def test_the_smallest_need_is_that_of_brute_force() -> None:
    problem, every = _all()
    least = smallest(problem.roofline, problem.bounds)
    assert least is not None
    assert least[1] == min(need for _, need in every.values())


def test_the_lowest_first_bound_is_named_among_equal_needs_and_few_needs_are_computed() -> None:
    first = {(0,): 5, (1,): 4, (2,): 1, (3,): 4, (4,): 9}
    second = {(0,): 5, (1,): 7, (2,): 20, (3,): 4, (4,): 9}
    needs = {(0,): 8, (1,): 8, (2,): 30, (3,): None, (4,): 9}
    asked = []

    def need(stack: Positions, limit: float) -> int | None:
        asked.append(stack)
        return needs[stack]

    assert smallest(needs, Bounds((first.__getitem__, second.__getitem__), need)) == ((1,), 8)
    assert sorted(asked) == [(0,), (1,), (3,)]
    assert smallest([(3,)], Bounds((first.__getitem__,), need)) is None


def test_a_stack_that_cannot_run_after_all_is_passed_over() -> None:
    seconds = {(): 2.0, (0,): 1.0}
    bounds = Bounds((lambda stack: 1,), lambda stack, limit: None if stack else 5)
    assert [point.stack for point in frontier(seconds, bounds, 10)] == [()]
    assert smallest(seconds, bounds) == ((), 5)


def test_if_nothing_fits_the_smallest_budget_that_would_do_does() -> None:
    _, every = _all()
    least = min(need for _, need in every.values())
    with pytest.raises(UsageError, match=f"the smallest budget that would do is {least} bytes"):
        restricted(NAMES, least - 1).rank(HERE)
    assert restricted(NAMES, least).rank(HERE).best.need_bytes == least
