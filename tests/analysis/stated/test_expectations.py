from typing import Any

import pytest

from assay.analysis.comparison import analyse
from assay.analysis.effects import Effect
from assay.analysis.stated.expectations import Outcome, check_expectations, judged, outcome
from assay.errors import UsageError
from assay.records.study import Expectation
from support.comparisons import TREATMENTS, record


def expectation(change: str, size: float = 0.0, metric: str = "step_seconds") -> Expectation:
    return Expectation.model_validate({"row": TREATMENTS[0], "metric": metric, "change": change, "size": size})


def measured(low: float, high: float) -> Effect:
    return Effect(change=(low + high) / 2, interval=(low, high), pairs=3)


@pytest.mark.parametrize(
    ("change", "size", "ends", "expected"),
    [
        ("lower", 0, (-0.2, -0.1), "confirmed"),
        ("lower", 0, (-0.2, 0.1), "not distinguishable"),
        ("lower", 0, (0.0, 0.0), "refuted"),
        ("lower", 0, (0.1, 0.2), "refuted"),
        ("lower", 0.1, (-0.2, -0.1), "confirmed"),
        ("lower", 0.1, (-0.2, -0.05), "not distinguishable"),
        ("lower", 0.1, (-0.09, -0.05), "refuted"),
        ("higher", 0, (0.1, 0.2), "confirmed"),
        ("higher", 0.15, (0.1, 0.2), "not distinguishable"),
        ("higher", 0.3, (0.1, 0.2), "refuted"),
        ("none", 0.05, (-0.05, 0.03), "confirmed"),
        ("none", 0.05, (-0.05, 0.06), "not distinguishable"),
        ("none", 0.05, (0.06, 0.09), "refuted"),
    ],
)
def test_the_whole_interval_decides(change: str, size: float, ends: tuple[float, float], expected: str) -> None:
    assert outcome(expectation(change, size), measured(*ends)) == expected


def test_an_exact_metric_is_an_interval_of_one_value_and_others_need_one() -> None:
    bare = Effect(change=-0.3, interval=None, pairs=1)
    assert outcome(expectation("lower", 0.2, "tensors_peak_bytes"), bare) is Outcome.CONFIRMED
    assert outcome(expectation("lower", 0.2), bare) is Outcome.NOT_DISTINGUISHABLE
    assert outcome(expectation("none", 0.01), Effect(change=0, interval=None, pairs=1, equal=True)) is Outcome.CONFIRMED


def test_a_row_or_metric_without_a_figure_is_not_measured() -> None:
    rows = analyse(record()).rows
    missing = expectation("lower").model_copy(update={"row": "x"})
    assert [one.outcome for one in judged([missing], rows)] == [Outcome.NOT_MEASURED]
    (found,) = judged([expectation("lower")], rows)
    assert found.effect == rows[0].effects["step_seconds"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"row": "lio"}, "did you mean 'lion'"), ({"metric": "step_secnds"}, "did you mean 'step_seconds'")],
)
def test_an_expectation_of_nothing_is_a_sentence(change: dict[str, Any], says: str) -> None:
    one = expectation("lower").model_copy(update={"row": "lion", **change})
    with pytest.raises(UsageError, match=says):
        check_expectations([one], {"baseline", "lion"})


def test_no_change_needs_a_size() -> None:
    with pytest.raises(ValueError, match="needs a size"):
        expectation("none")
