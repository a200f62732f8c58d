"""Steps that are replayed: one from each part of the middle, and as rarely missed as is stated."""

import itertools

import pytest

from assay.records.evidence import ValueProof
from assay.values.replayed_steps import Costs, affordable, draw_steps


@pytest.mark.parametrize(("steps", "count"), [(1, 1), (7, 2), (31, 5), (31, 31), (1000, 29), (12, 0)])
def test_one_step_is_drawn_from_each_part(steps: int, count: int) -> None:
    middle = range(4, 4 + steps)
    for seed in range(20):
        found = draw_steps(middle, count, seed)
        assert len(found) == count
        assert list(found) == sorted(set(found))
        assert set(found) <= set(middle)
        parts = [part * steps // count for part in range(count + 1)] if count else []
        assert all(low <= one - 4 < high for one, (low, high) in zip(found, itertools.pairwise(parts), strict=True))


def test_another_seed_draws_other_steps_and_every_step_can_be_drawn() -> None:
    draws = {seed: draw_steps(range(31), 5, seed) for seed in range(300)}
    assert draws[0] != draws[1]
    assert set().union(*draws.values()) == set(range(31))


@pytest.mark.parametrize("faulty", [[3], list(range(8)), list(range(0, 32, 4)), [1, 2, 29], list(range(10, 30))])
def test_a_fault_is_missed_no_more_often_than_is_stated(faulty: list[int]) -> None:
    count, draws = 5, 4000
    missed = sum(not set(draw_steps(range(32), count, seed)) & set(faulty) for seed in range(draws)) / draws
    stated = ValueProof(verdict=True, replayed=count, middle_steps=32).chance_of_missing(len(faulty))
    assert missed <= stated + 0.02


def test_a_proof_without_a_replayed_step_misses_every_fault() -> None:
    assert ValueProof(middle_steps=30).chance_of_missing(29) == 1.0
    assert ValueProof(middle_steps=30, replayed=1).chance_of_missing(30) == 0.0
    assert ValueProof().chance_of_missing(1) == 0.0


EXACT = Costs(7.5, 4.0, 1.5)


def test_longer_runs_can_afford_more() -> None:
    assert affordable(34, 31, EXACT) == 5
    assert affordable(2000, 1997, EXACT) == 59
    assert affordable(34, 31, Costs(15.0, 10.0, 3.5)) == 1  # a run with a middle is never without a replayed step
    assert affordable(24, 12, Costs(0.0, 0.0, 1.0)) == 3  # every fourth step at most
    assert affordable(8, 3, Costs(0.0, 0.0, 1.0)) == 1
    assert affordable(3, 0, Costs(0.0, 0.0, 1.0)) == 0


@pytest.mark.parametrize(("first", "each"), [(8.5, 2.0), (9.0, 2.7)])
def test_slow_checks_replay_fewer_steps_of_a_long_run_and_keep_its_budget(first: float, each: float) -> None:
    measured = EXACT.slowed(first, each)
    assert 12 <= (count := affordable(1000, 997, EXACT, measured)) < affordable(1000, 997, EXACT)
    assert measured.fixed + count * measured.each <= 50


def test_at_least_half_of_the_steps_are_replayed_however_slow_a_check_is() -> None:
    assert affordable(1000, 997, EXACT, EXACT.slowed(100.0, 30.0)) == 13
    assert affordable(34, 31, EXACT, EXACT.slowed(100.0, 30.0)) == 3


@pytest.mark.parametrize("each", [1.5, 2.0])
def test_a_short_run_replays_as_many_steps_on_a_busy_machine(each: float) -> None:
    assert affordable(34, 31, EXACT, EXACT.slowed(9.0, each)) == affordable(34, 31, EXACT) == 5


@pytest.mark.parametrize(("first", "each", "count"), [(7.5, 2.4, 3), (7.5, 2.15, 3), (9.0, 2.8, 3), (12.0, 5.7, 3)])
def test_a_short_run_whose_replays_are_dear_keeps_its_budget(first: float, each: float, count: int) -> None:
    assert affordable(34, 31, EXACT, EXACT.slowed(first, each)) == count


def test_a_quick_check_replays_no_more_steps() -> None:
    assert EXACT.slowed(1.0, 0.5) == EXACT
    assert affordable(1000, 997, EXACT, EXACT.slowed(1.0, 0.5)) == affordable(1000, 997, EXACT) == 25
