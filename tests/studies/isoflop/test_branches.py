"""Runs of one size share the rates of their first steps, up to the step at which each branches off."""

import pytest

from assay.config import TrainingConfig
from assay.studies.isoflop.branches import SharedSteps
from assay.training.learning_rate import schedule

BASE = TrainingConfig(steps=100, warmup_steps=5)
LENGTHS = (100, 210, 400)
SHARED = SharedSteps(BASE, LENGTHS)


def settled(steps: int) -> TrainingConfig:
    settings = {key.partition(".")[2]: value for key, value in SHARED.settings(steps, whole=False).items()}
    return BASE.model_copy(update={**settings, "steps": steps})


def test_rates_are_those_of_the_trunk_until_a_fifth_of_the_steps_is_left() -> None:
    trunk = schedule(settled(400))
    assert [SHARED.branch_step(one) for one in LENGTHS] == [80, 168, 0]
    for steps in LENGTHS[:2]:
        own, at = schedule(settled(steps)), SHARED.branch_step(steps)
        assert [own(step) for step in range(at)] == [trunk(step) for step in range(at)]
        assert own(at + 1) < trunk(at + 1)


def test_the_longest_keeps_what_the_others_begin_with_unless_it_is_whole() -> None:
    assert [list(settled(one).keep_steps) for one in LENGTHS] == [[], [], [80, 168]]
    assert SHARED.settings(400, whole=True)["training.keep_steps"] == []


def test_the_warm_up_is_that_of_the_shortest_and_the_rate_that_of_the_middle() -> None:
    assert SHARED.warmup == 5
    assert SHARED.middle == pytest.approx((100 * 210 * 400) ** (1 / 3))
    assert SharedSteps(BASE, (210,)).middle == 210


def test_two_equal_lengths_and_very_short_ones_have_no_branch() -> None:
    assert SharedSteps(BASE, (400, 400)).branch_step(400) == 0
    assert SharedSteps(BASE.model_copy(update={"warmup_steps": 0}), (1, 400)).branch_step(1) == 0
