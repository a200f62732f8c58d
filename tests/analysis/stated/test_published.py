"""Published changes beside ours, and printed changes against the document's own table."""

from typing import Any

import pytest

from assay.analysis.comparison import analyse
from assay.analysis.effects import Effect
from assay.analysis.stated.published import Agreement, _agreement, beside, check_published, recomputed
from assay.errors import UsageError
from assay.records.published import PublishedStudy
from support.comparisons import TREATMENTS, record


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
    (one,) = recomputed(table(printed=[change]))
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
