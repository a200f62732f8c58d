"""A training at the pace of a step: hours and money from and to, by arithmetic in plain lines."""

import pytest

from assay.estimator.cost import Training
from assay.estimator.timing.step_time import SHEET_FACTORS, StepTime, spread_of
from assay.report.predictions import hours_words, money_words, pace_words, training_words


def _training(**changes: object) -> Training:
    asked = {
        "tokens": 3.6e6,
        "tokens_per_step": 1000,
        "step_seconds": 2.0,
        "spread": (0.6, 1.4),
        "devices": 8,
        "price": 2.5,
    }
    return Training.model_validate(asked | changes)


def test_hours_and_money_follow_from_the_step() -> None:
    found = _training()
    assert found.seconds == 3600 * 2.0
    assert found.hours == pytest.approx((1.2, 2.8))
    assert found.device_hours == pytest.approx((9.6, 22.4))
    assert found.money == pytest.approx((24.0, 56.0))
    assert _training(price=None).money is None
    assert training_words(found) == "3.60M tokens take 1.2 to 2.8 hours and cost 24 to 56"


def test_a_time_of_unknown_error_is_a_bound() -> None:
    found = _training(spread=None)
    assert found.hours == (2.0, 2.0)
    assert hours_words(found) == "at least 2 hours"
    assert money_words(found) == "at least 40"


def test_the_last_step_is_whole_and_fewer_tokens_than_a_step_are_said_to_be_so() -> None:
    """One token was billed a thousandth of a step."""
    assert _training(tokens=1).seconds == _training(tokens=1000).seconds == 2.0
    assert _training(tokens=1001).seconds == 4.0
    one = "1 token, fewer than the 1,000 of one step, takes 1.2 to 2.8 seconds and costs 0.0067 to 0.016"
    assert training_words(_training(tokens=1)) == one
    assert training_words(_training(tokens=999)).startswith("999 tokens, fewer than the 1,000 of one step, take ")
    assert training_words(_training(tokens=1000, price=None)) == "1.00k tokens take 1.2 to 2.8 seconds"


@pytest.mark.parametrize(("seconds", "unit"), [(20.0, "hours"), (1e5, "years")])
def test_a_plan_and_its_errors_have_one_unit(seconds: float, unit: str) -> None:
    """A plan of 1.19k years was said to lie between 388,391 and 494,316 days."""
    words = pace_words(_training(step_seconds=seconds))
    by_plan, by_errors = words.removesuffix(" by its errors").split(" by the plan; ")
    assert by_plan.endswith(f" {unit}")
    assert by_errors.endswith(f" {unit}")
    low, high = (float(one) for one in by_errors.split()[0:3:2])
    assert low < float(by_plan.split()[0]) < high


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1e-3, "2.2 to 5 seconds"),
        (0.1, "3.6 to 8.4 minutes"),
        (2.0, "1.2 to 2.8 hours"),
        (200.0, "5 to 12 days"),
        (1e5, "6.8 to 16 years"),
    ],
)
def test_a_time_is_said_in_its_unit(seconds: float, words: str) -> None:
    assert hours_words(_training(step_seconds=seconds)) == words


def test_each_kind_of_step_time_has_its_spread() -> None:
    assert StepTime(1.0, margin=0.2).spread == (0.8, 1.2)
    assert StepTime(1.0, margin=0.7).spread == pytest.approx((0.4966, 2.0138), rel=1e-3)
    assert StepTime(1.0, factor=2.0).spread == (0.5, 2.0)
    assert StepTime(1.0, factors=SHEET_FACTORS).spread == (1.5, 4.0)
    assert StepTime(1.0).spread is None
    assert spread_of(0.4) == pytest.approx((0.6, 1.4))
