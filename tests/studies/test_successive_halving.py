"""Successive halving: its rows, its rungs, and what the kind refuses."""

import pytest
from pydantic import ValidationError

from assay.config import load
from assay.records.study import BASELINE
from assay.studies.kinds import kinds
from assay.studies.kinds.successive_halving import SuccessiveHalving

RATES = {"training.learning_rate": {"low": 1e-4, "high": 1e-2}}


def study(**changes: object) -> SuccessiveHalving:
    written = {"space": RATES, "trials": 9, "steps": [10, 30, 90], "seeds": 2, **changes}
    return SuccessiveHalving.model_validate(written, strict=False)


def test_each_rung_has_the_same_settings_with_more_steps() -> None:
    control, *rows = study().rows(load("demo"))
    assert (control.label, control.run.training.steps) == (BASELINE, 90)
    assert [row.run.training.steps for row in rows] == [10] * 9 + [30] * 9 + [90] * 9
    rates = [row.run.training.learning_rate for row in rows]
    assert rates[:9] == rates[9:18] == rates[18:]
    assert len(set(rates)) == 9
    assert kinds()["successive_halving"] is SuccessiveHalving


def test_the_rungs_name_the_rows() -> None:
    found, rows = study().halving(), study().rows(load("demo"))[1:]
    assert [label for rung in found.rungs for label in rung] == [row.label for row in rows]
    assert found.kept == (9, 3, 1)
    assert [found.share(row.label) for row in rows[::9]] == [1, 3 / 9, 1 / 9]
    assert study(trials=4).halving().kept == (4, 1, 1)
    assert study(reduction=2).halving().kept == (9, 4, 2)
    assert study().notes() == ("9 rows train for 10 steps, then the best 3 for 30, the best 1 for 90.",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": [10]}, "at least 2 items"),
        ({"steps": [10, 10]}, "steps must be positive and ascend"),
        ({"steps": [0, 10]}, "steps must be positive and ascend"),
        ({"steps": [True, 10]}, "YAML reads yes, no, true and false as truth values"),
        ({"steps": 10}, "tuple"),
        ({"reduction": 1}, "greater than or equal to 2"),
        ({"space": {"training.steps": [10, 20]}}, "space has training.steps, which the rungs decide"),
    ],
)
def test_impossible_searches_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        study(**changes)
