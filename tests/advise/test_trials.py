"""Trials of stacks: the fastest is found where techniques interact, and the recommended one fits an absent GPU."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.advise import trials
from assay.advise.ledgers import Positions
from assay.advise.problem import Problem, Ranking
from assay.advise.recommend import advice
from assay.advise.search import Point
from assay.advise.trials import LEDGER, check_ranking, improvement, time_stacks
from assay.api import recommend
from assay.config import Home, ResolvedRun
from assay.errors import UsageError
from assay.fake.peak import GpuPeak
from assay.hardware.step_times import CalibrationReply, StepTimes, Task
from assay.launch.step_times import Stopwatch
from assay.records.own import TracedPeak
from support.absent import PYTHON, needs_cuda_build
from support.advice import PLENTY, restricted

ALONE: Mapping[str, float] = {"sdpa_attention": 0.9, "bf16_mixed": 0.7, "fused_adamw": 0.9, "compile": 0.6}
"""Factors of a step's time. Fused attention in bfloat16 is three times as slow, as on some processors."""
TOGETHER = {frozenset({"sdpa_attention", "bf16_mixed"}): 3.0}
PLAIN_SECONDS, COMPILED_SECONDS = 2.0, 20.0
FASTEST = {"bf16_mixed", "fused_adamw", "compile"}
BUDGET = 20 * 10**9


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
    monkeypatch.setattr(trials.time, "monotonic", lambda: found.now)
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
    ranking = timed(problem, home, 2.4 * trials._COMPILED_SECONDS)
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


@pytest.fixture
def problem() -> Problem:
    return restricted({"sdpa_attention", "fused_adamw", "chunked_cross_entropy"}, BUDGET, "device")


def _peak(reserved: int) -> GpuPeak:
    figures = dict.fromkeys(("peak_bytes", "requested_peak_bytes", "allocated_peak_bytes"), reserved)
    kept = {name: None for name, field in TracedPeak.model_fields.items() if not field.is_required()}
    asked = {"device": "rtx4090", "torch": "2.11.0", "ran": True, "reserved_peak_bytes": reserved}
    return GpuPeak.model_construct(**{**kept, **figures, **asked})


def _answers(monkeypatch: pytest.MonkeyPatch, *answers: int | str) -> list[ResolvedRun]:
    """Let an absent GPU answer in this order, with reserved bytes or with a refusal; return the runs that it gets."""
    asked: list[ResolvedRun] = []
    left = list(answers)

    def ran(run: ResolvedRun, device: str, *rest: Any, **more: Any) -> GpuPeak:
        asked.append(run)
        answer = left.pop(0)
        if isinstance(answer, str):
            raise UsageError(answer)
        return _peak(answer)

    monkeypatch.setattr(trials, "run_on_absent_gpu", ran)
    monkeypatch.setattr(trials, "refusal", lambda: None)
    return asked


def _checked(problem: Problem, device: str = "rtx4090") -> trials.Checked:
    return check_ranking(problem, lambda: problem.rank(problem.machine), device, lambda text: None)


def test_a_stack_that_fits_there_is_advised(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    asked = _answers(monkeypatch, 10**9)
    found = _checked(problem)
    assert found.ranking.best.stack == best
    assert asked == [problem.resolved(best)]
    assert found.by == "running it on an absent GPU, with torch 2.11.0: 1.58 GiB to 1.67 GiB in use"


def test_one_that_does_not_fit_there_gives_way(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    asked = _answers(monkeypatch, BUDGET, 10**9)
    found = _checked(problem)
    assert found.ranking.best.stack != best
    assert asked == [problem.resolved(best), problem.resolved(found.ranking.best.stack)]
    assert problem.need(best) is None


def test_the_ledger_decides_where_no_absent_gpu_can(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    _answers(monkeypatch, "a module is missing there")
    found = _checked(problem)
    assert found.ranking.best.stack == best
    assert found.by == f"{LEDGER}; it ran on no absent GPU: a module is missing there"
    assert "v100 is none of a100, a100-40gb" in _checked(problem, "v100").by
    monkeypatch.setattr(trials, "refusal", lambda: "no CUDA build")
    assert _checked(problem).by.endswith(": no CUDA build")


@pytest.mark.absent
@needs_cuda_build
def test_a_stack_runs_on_an_absent_gpu_before_it_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ABSENT_PYTHON", PYTHON)
    words = ("model.n_layer=5", "model.n_embd=64", "model.n_head=2", "optimizations=[sdpa_attention,fused_adamw]")
    found = recommend("demo", *words, device="rtx4090", max_loss_change=0.0, home=tmp_path)
    assert found.checked.startswith("running it on an absent GPU, with torch ")
