"""Published changes beside ours, and printed changes against the document's own table."""

from collections.abc import Mapping
from typing import Any

import pytest

from assay.analysis.claims import (
    Agreement,
    Outcome,
    _agreement,
    beside,
    check_expectations,
    check_published,
    judge_expectations,
    outcome,
    recompute_changes,
)
from assay.analysis.comparison import analyse
from assay.analysis.effects import Effect
from assay.analysis.factors.changes import factor_effects
from assay.errors import UsageError
from assay.records.published import PublishedStudy
from assay.records.study import Expectation
from assay.studies.kinds.factorial import Factorial
from support.comparisons import TREATMENTS, record
from support.factorials import compared, factorial


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
    assert [one.outcome for one in judge_expectations([missing], rows)] == [Outcome.NOT_MEASURED]
    (found,) = judge_expectations([expectation("lower")], rows)
    assert found.effect == rows[0].effects["step_seconds"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"row": "lio"}, "did you mean 'lion'"), ({"metric": "step_secnds"}, "did you mean 'step_seconds'")],
)
def test_an_expectation_of_nothing_is_a_sentence(change: dict[str, Any], says: str) -> None:
    one = expectation("lower").model_copy(update={"row": "lion", **change})
    with pytest.raises(UsageError, match=says):
        check_expectations([one], {"baseline", "lion"}, {})


FACTORS = {"a": ("1", "2"), "b": ("1", "2")}


def stated(effect: dict[str, Any], change: str = "lower", size: float = 0.0, metric: str = "step_seconds") -> Any:
    return Expectation.model_validate({"effect": effect, "metric": metric, "change": change, "size": size})


def test_main_effects_and_interactions_are_judged_by_the_table_of_effects() -> None:
    """The step of `a` takes 0.8 of the control's, and with `b` 0.8 × 1.2; memory multiplies exactly."""

    def figures(levels: Mapping[str, str]) -> tuple[float, float, float]:
        both = 1.2 if levels == {"a": "2", "b": "2"} else 1.0
        return (0.5 if levels["a"] == "2" else 1.0), (0.8 if levels["a"] == "2" else 1.0) * both, 1.0

    comparison = compared(factorial(FACTORS), figures, between=0.004)
    expects = [
        stated({"a": "2"}, "lower", 0.05),
        stated({"a": "2"}, "higher"),
        stated({"b": "2", "a": "2"}, "higher", 0.1),
        stated({"a": "2", "b": "2"}, "none", 0.01, "tensors_peak_bytes"),
        stated({"a": "2", "b": "2"}, "lower", 0.0, "tensors_peak_bytes"),
        stated({"c": "2"}),
    ]
    found = judge_expectations(expects, comparison.rows, factor_effects(comparison))
    assert [one.outcome.value for one in found] == [
        "confirmed",
        "refuted",
        "confirmed",
        "confirmed",
        "refuted",
        "not measured",
    ]
    assert found[2].effect is not None
    assert found[2].effect.change == pytest.approx(0.2, abs=0.03)


def test_an_effect_that_has_an_alias_is_not_distinguishable() -> None:
    comparison = compared(factorial(FACTORS), lambda one: (0.5 if one["a"] == "2" else 1.0, 1.0, 1.0))
    (memory,) = (one for one in factor_effects(comparison) if one.metric == "tensors_peak_bytes")
    mixed = [one.model_copy(update={"aliases": ((("d", "2"),),)}) for one in memory.effects]
    aliased = memory.model_copy(update={"effects": tuple(mixed)})
    expects = [stated({"a": "2"}, metric="tensors_peak_bytes"), stated({"d": "2"}, metric="tensors_peak_bytes")]
    assert [one.outcome for one in judge_expectations(expects[:1], (), [memory])] == [Outcome.CONFIRMED]
    assert [one.outcome for one in judge_expectations(expects, (), [aliased])] == [Outcome.NOT_DISTINGUISHABLE] * 2


@pytest.mark.parametrize(
    ("effect", "metric", "says"),
    [
        ({"z": "2"}, "step_seconds", "names the factor 'z', which the study does not have"),
        ({"a": "3"}, "step_seconds", "names a=3, which is no level"),
        ({"a": "1"}, "step_seconds", "which is the control's level"),
        ({"a": "2"}, "tokens_per_second", "names an effect on tokens_per_second"),
    ],
)
def test_an_effect_that_cannot_be_is_a_sentence(effect: dict[str, Any], metric: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_expectations([stated(effect, metric=metric)], set(), FACTORS)


def test_an_expectation_is_of_a_row_or_of_an_effect() -> None:
    with pytest.raises(ValueError, match="either a row, or an effect"):
        stated({})


def test_levels_of_an_effect_are_read_as_those_of_a_factor() -> None:
    expects = [{"effect": {"model.bias": True}, "metric": "step_seconds", "change": "lower"}]
    study = Factorial.model_validate({"vary": {"model.bias": [False, True]}, "expects": expects}, strict=False)
    assert study.expects[0].effect == {"model.bias": "true"}


def test_no_change_needs_a_size() -> None:
    with pytest.raises(ValueError, match="needs a size"):
        expectation("none")


def table(**changes: Any) -> PublishedStudy:
    """A document with a control, two rows that ours repeat, and one that nobody repeats."""
    values: dict[str, Any] = {
        "document": "A document",
        "control": "None",
        "columns": [
            {"name": "Memory (GB)", "metric": "tensors_peak_bytes", "digits": 1},
            {"name": "Time (s)", "metric": "step_seconds"},
            {"name": "Events"},
        ],
        "rows": [
            {"name": "None", "row": "baseline", "figures": [4.0, 100, 7]},
            {"name": "Fused", "row": TREATMENTS[0], "figures": [3.0, 80, 8]},
            {"name": "Recomputed", "row": TREATMENTS[2], "against": "Fused", "figures": [2.0, 120, 9]},
            {"name": "Other", "figures": [1.0, None, 9]},
        ],
    }
    return PublishedStudy.model_validate({**values, **changes})


def found(published: PublishedStudy) -> dict[tuple[str, str], Any]:
    one = analyse(record(published=published))
    return {(each.row.name, each.column.name): each for each in beside(one)}


def test_changes_are_compared_and_columns_without_a_metric_and_rows_without_ours_are_left_out() -> None:
    each = found(table())
    assert set(each) == {
        (row, column) for row in ("None", "Fused", "Recomputed") for column in ("Memory (GB)", "Time (s)")
    }
    memory = each["Fused", "Memory (GB)"]
    assert memory.change == pytest.approx(-0.25)
    assert memory.ours is not None
    assert memory.ours.change == pytest.approx(0.72 - 1, abs=1e-6)
    assert memory.agreement is Agreement.SAME
    assert each["None", "Time (s)"].change is None
    assert each["None", "Time (s)"].agreement is Agreement.UNKNOWN


def test_a_row_against_another_row_is_compared_with_the_ratio_of_ours() -> None:
    one = found(table())["Recomputed", "Memory (GB)"]
    assert one.change == pytest.approx(2 / 3 - 1)
    assert one.ours is not None
    assert one.ours.change == pytest.approx(0.55 / 0.72 - 1, abs=1e-6)
    assert one.ours.interval is None
    assert one.agreement is Agreement.SAME
    assert found(table())["Recomputed", "Time (s)"].agreement is Agreement.NO_INTERVAL


def test_without_a_published_study_there_is_nothing() -> None:
    assert beside(analyse(record())) == ()


@pytest.mark.parametrize(
    ("change", "ends", "agreement"),
    [
        (-0.2, (-0.3, -0.1), Agreement.WITHIN),
        (-0.5, (-0.3, -0.1), Agreement.SAME),
        (0.5, (-0.3, -0.1), Agreement.OPPOSITE),
        (0.0, (-0.3, -0.1), Agreement.ONE),
        (-0.5, (-0.3, 0.1), Agreement.UNCERTAIN),
        (0.0, (-0.3, 0.1), Agreement.WITHIN),
    ],
)
def test_an_interval_decides_how_they_agree(change: float, ends: tuple[float, float], agreement: Agreement) -> None:
    ours = Effect(change=sum(ends) / 2, interval=ends, pairs=3)
    assert _agreement("step_seconds", change, ours) is agreement


def test_rows_that_are_exactly_equal_need_no_interval() -> None:
    equal = Effect(change=0.0, interval=None, pairs=1, equal=True)
    assert _agreement("train_loss", 0.0, equal) is Agreement.NEITHER
    assert _agreement("train_loss", 0.3, equal) is Agreement.ONE


@pytest.mark.parametrize(
    ("printed", "contradicted"),
    [
        ("-25 %", False),
        ("−25 %", False),
        ("-27 %", False),
        ("-28 %", True),
        ("-30 %", True),
        ("+25 %", True),
        ("-21.9 %", True),
    ],
)
def test_a_printed_change_may_come_from_any_figures_that_round_to_the_table(printed: str, contradicted: bool) -> None:
    # 3.0 may be 2.95 to 3.05 and 4.0 may be 3.95 to 4.05: −27.2 % to −22.8 %.
    change = {"row": "Fused", "against": "None", "column": "Memory (GB)", "printed": printed}
    (one,) = recompute_changes(table(printed=[change]))
    assert one.change == pytest.approx(-0.25)
    assert one.contradicted is contradicted


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"row": "Fusd"}, "did you mean 'Fused'"),
        ({"column": "Time"}, "did you mean 'Time"),
        ({"printed": "less"}, "should match pattern"),
        ({"row": "Other", "column": "Time (s)"}, "has no figure of"),
    ],
)
def test_a_printed_change_of_nothing_is_refused(change: dict[str, str], says: str) -> None:
    one = {"row": "Fused", "against": "None", "column": "Memory (GB)", "printed": "-25 %", **change}
    with pytest.raises(ValueError, match=says):
        table(printed=[one])


def test_a_label_or_a_metric_that_the_study_does_not_have_is_a_sentence() -> None:
    check_published(None, set())
    check_published(table(), {"baseline", *TREATMENTS})
    with pytest.raises(UsageError, match=f"names the row '{TREATMENTS[0]}', which the study does not have"):
        check_published(table(), {"baseline", TREATMENTS[2]})
    with pytest.raises(UsageError, match="did you mean 'step_seconds'"):
        check_published(table(columns=[{"name": "a", "metric": "step_secnds"}], rows=[], control=None), set())
