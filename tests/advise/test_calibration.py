"""The search for stacks worth timing: it finds the fastest one where techniques interact, and keeps to its time."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from assay.advise import calibration
from assay.advise.calibration import improvement, time_stacks
from assay.advise.ledgers import Positions
from assay.advise.problem import Problem, Ranking
from assay.advise.recommend import advice
from assay.advise.search import Point
from assay.config import Home
from assay.hardware.step_times import CalibrationReply, StepTimes, Task
from assay.launch.step_times import Stopwatch
from support.advice import PLENTY, restricted

ALONE: Mapping[str, float] = {"sdpa_attention": 0.9, "bf16_mixed": 0.7, "fused_adamw": 0.9, "compile": 0.6}
"""Factors of a step's time. Fused attention in bfloat16 is three times as slow, as on some processors."""
TOGETHER = {frozenset({"sdpa_attention", "bf16_mixed"}): 3.0}
PLAIN_SECONDS, COMPILED_SECONDS = 2.0, 20.0
FASTEST = {"bf16_mixed", "fused_adamw", "compile"}


class World:
    """Steps with known times, on a clock that only they move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[frozenset[str]] = []
        self.refused: frozenset[str] | None = None

    def answer(self, task: Task) -> CalibrationReply:
        names = frozenset(one.name for one in task.runs[0].optimizations)
        self.asked.append(names)
        self.now += COMPILED_SECONDS if "compile" in names else PLAIN_SECONDS
        if names == self.refused:
            return CalibrationReply(digest=task.digest, refused="no")
        seconds = 0.1
        for count in range(1, len(names) + 1):
            for some in combinations(sorted(names), count):
                seconds *= ALONE.get(some[0], 1.3) if count == 1 else TOGETHER.get(frozenset(some), 1.0)
        depths = tuple(run.model.n_layer for run in task.runs)
        return CalibrationReply(
            digest=task.digest, times=StepTimes(depths=depths, turns=((seconds,) * len(depths),) * 3)
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(Stopwatch, "answer", lambda stopwatch, task: found.answer(task))
    monkeypatch.setattr(calibration.time, "monotonic", lambda: found.now)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ready()


def searched(names: set[str], budget: int = PLENTY) -> Problem:
    found = restricted(names, budget)
    if not any(one.one.name() == "compile" for one in found.found):
        pytest.skip("this machine has no C++ compiler")
    return found


def timed(problem: Problem, home: Home, seconds: float) -> Ranking:
    return problem.rank(time_stacks(problem, home, None, seconds, lambda text: None), of_timed=True)


def test_an_interaction_that_no_roofline_knows_is_found_before_the_compiler_is_tried(world: World, home: Home) -> None:
    problem = searched({*ALONE, "activation_checkpointing", "chunked_cross_entropy"})
    ranking = timed(problem, home, 120)
    found = advice(problem, ranking, "any", "assay train demo", absent=False)
    assert set(found.recommended.stack) == FASTEST
    assert found.recommended.timed
    assert world.asked[0] == frozenset()
    first = next(place for place, names in enumerate(world.asked) if "compile" in names)
    assert {frozenset({"bf16_mixed"}), frozenset({"bf16_mixed", "fused_adamw"})} <= set(world.asked[:first])


def test_it_keeps_to_its_time_and_says_what_it_did_not_time(world: World, home: Home) -> None:
    problem = searched(set(ALONE))
    found = advice(problem, timed(problem, home, 15), "any", "assay train demo", absent=False)
    assert world.now <= 15 + PLAIN_SECONDS
    assert not any("compile" in names for names in world.asked)
    assert found.recommended.timed
    assert set(found.recommended.stack) == FASTEST - {"compile"}
    assert any("was not timed; give --calibrate more seconds" in one for one in found.warnings)


def test_time_is_kept_for_the_stack_that_promises_most(world: World, home: Home) -> None:
    """Plain stacks would fill the time, but compilation promises more than what is left of them."""
    others = {"activation_checkpointing", "chunked_cross_entropy", "selective_checkpointing", "gradient_accumulation"}
    problem = searched({*ALONE, *others})
    ranking = timed(problem, home, 2.4 * calibration._COMPILED_SECONDS)
    assert sum("compile" in names for names in world.asked) in (1, 2)
    assert "compile" in {str(problem.found[i]) for i in ranking.best.stack}


def test_it_ends_when_nothing_promises_more(world: World, home: Home) -> None:
    problem = searched(set(ALONE))
    timed(problem, home, 10_000)
    assert world.now < 500
    assert len(world.asked) == len(set(world.asked))


def test_a_stack_that_cannot_be_timed_is_asked_for_once(world: World, home: Home) -> None:
    world.refused = frozenset({"bf16_mixed"})
    problem = searched(set(ALONE))
    timed(problem, home, 200)
    assert world.asked.count(world.refused) == 1


def test_where_the_untreated_run_does_not_fit_the_smallest_is_timed_too(world: World, home: Home) -> None:
    names = {"activation_checkpointing", "bf16_mixed", "compile"}
    need = {stack: searched(names).need(stack) for stack in searched(names).roofline}
    budget = sorted(one for one in need.values() if one is not None)[0]
    problem = searched(names, budget)
    ranking = timed(problem, home, 200)
    assert ranking.best.stack in ranking.timed
    assert ranking.best.need_bytes <= budget < (need[()] or 0)


@pytest.mark.parametrize(("seconds", "margin"), [(1.0, 0.5), (0.7, 0.1), (1.4, 0.3), (1.4, 2.0)])
def test_the_expected_improvement_is_that_of_many_draws(seconds: float, margin: float) -> None:
    one, other = (0,), (1,)
    times: dict[Positions, float] = {one: 1.0, other: seconds}
    ranking = Ranking(times, {one: 0.1, other: margin}, frozenset({one}), [], Point(one, 1.0, 1), (), False)
    draws = np.random.default_rng(0).normal(np.log(seconds), margin / 1.959964, 200_000)
    assert improvement(ranking, one, other) == pytest.approx(np.maximum(-draws, 0.0).mean(), abs=0.003)
