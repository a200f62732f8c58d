"""Steps that are replayed: one from each part of the middle, and as rarely missed as is stated."""

import itertools

import pytest

from assay.records.evidence import ValueProof
from assay.values.replayed_steps import affordable, draw_steps


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


def test_longer_runs_can_afford_more() -> None:
    assert affordable(34, 31, 12.0, 1.5) == 5
    assert affordable(2000, 1997, 12.0, 1.5) == 58
    assert affordable(34, 31, 25.0, 3.5) == 1  # a run with a middle is never without a replayed step
    assert affordable(24, 12, 0.0, 1.0) == 3  # every fourth step at most
    assert affordable(8, 3, 0.0, 1.0) == 1
    assert affordable(3, 0, 0.0, 1.0) == 0


def test_slow_replays_are_fewer_in_a_long_run_and_as_many_in_a_short_one() -> None:
    assert affordable(1000, 997, 11.5, 1.5, measured=1.2) == affordable(1000, 997, 11.5, 1.5) == 25
    assert affordable(1000, 997, 11.5, 1.5, measured=2.0) == 17  # 4/3 of 11.5, and 17 × 2, of 50 steps
    assert affordable(1000, 997, 11.5, 1.5, measured=30.0) == 12
    assert affordable(34, 31, 11.5, 1.5, measured=30.0) == affordable(34, 31, 11.5, 1.5) == 5
