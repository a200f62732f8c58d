"""Random search: the draws, their ranges and scales, and the rows that follow."""

import math

import pytest
from pydantic import ValidationError

from assay.config import load
from assay.records.study import BASELINE
from assay.studies.kinds import kinds
from assay.studies.kinds.random import RandomSearch

SPACE = {
    "training.learning_rate": {"low": 1e-4, "high": 1e-2},
    "training.batch_size": [4, 8],
    "model.n_layer": {"low": 1, "high": 4, "integer": True, "scale": "linear"},
}


def study(**changes: object) -> RandomSearch:
    return RandomSearch.model_validate({"space": SPACE, "trials": 6, **changes}, strict=False)


def test_rows_depend_on_the_seed_alone_and_more_trials_begin_with_the_same() -> None:
    few, many = (list(study(trials=count).combinations()) for count in (6, 12))
    assert many[:7] == few
    assert list(study(draw_seed=1).combinations())[1:] != few[1:]


def test_the_control_is_the_base() -> None:
    base = load("demo")
    control, *rows = study().rows(base)
    assert control.label == BASELINE
    assert control.run.training.learning_rate == base.training.learning_rate
    assert len(rows) == 6
    assert {row.run.training.batch_size for row in rows} == {4, 8}
    assert kinds()["random"] is RandomSearch


@pytest.mark.parametrize(("scale", "middle"), [("log", 1e-3), ("linear", 5.05e-3)])
def test_half_of_the_draws_lie_below_the_middle_of_the_scale(scale: str, middle: float) -> None:
    space = {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "scale": scale}}
    drawn = [float(row["training.learning_rate"]) for row in list(study(space=space, trials=500).combinations())[1:]]
    assert all(1e-4 <= value <= 1e-2 for value in drawn)
    below = sum(value < middle for value in drawn)
    assert abs(below - 250) < 4 * math.sqrt(500 / 4), "four standard deviations of a fair coin"


def test_whole_numbers_reach_both_ends() -> None:
    space = {"model.n_layer": {"low": 1, "high": 4, "integer": True, "scale": "linear"}}
    found = study(space=space, trials=9)
    assert {row["model.n_layer"] for row in found.combinations()} == {"base", "1", "2", "3", "4"}
    assert found.notes() == ("Only 4 different rows were found for 9 trials.",)
    assert study().notes() == ()


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({}, "at least 1 item"),
        ({"training.steps": 3}, "needs a list of values, or a range"),
        ({"training.steps": []}, "needs a list of values, or a range"),
        ({"training.steps": {"low": 3, "high": 3}}, "low=3 must be below high=3"),
        ({"training.steps": {"low": 0, "high": 3}}, "has no logarithm"),
        ({"training.steps": {"low": 1, "hgih": 3}}, "hgih"),
        ({"training.steps": {"low": float("nan"), "high": 3}}, "finite"),
        ({"training.steps": {"low": False, "high": 3}}, "truth values"),
        ({"training.steps": {"low": -1.7e308, "high": 1.7e308, "scale": "linear"}}, "too wide"),
        ({"training.steps": {"low": 0.1, "high": 0.4, "integer": True, "scale": "linear"}}, "no whole number"),
    ],
)
def test_a_faulty_space_is_refused(space: object, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        study(space=space)


def test_draws_stay_in_a_narrow_range_and_may_equal_the_base() -> None:
    space = {"training.learning_rate": {"low": 0.00123456, "high": 0.00123457}}
    drawn = [float(row["training.learning_rate"]) for row in list(study(space=space).combinations())[1:]]
    assert all(0.00123456 <= value <= 0.00123457 for value in drawn)
    base = load("demo", ["training.steps=5"])
    rows = study(space={"training.steps": [5, 6]}, trials=2).rows(base)
    assert sorted(row.run.training.steps for row in rows) == [5, 5, 6]


@pytest.mark.parametrize("changes", [{"trials": True}, {"draw_seed": True}, {"trials": 10**9}])
def test_faulty_numbers_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        study(**changes)
