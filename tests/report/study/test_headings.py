"""Headings of a page that are findings."""

from collections.abc import Mapping
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.published import PublishedStudy
from assay.records.study import Expectation, Protocol
from assay.report.study.view import StudyView, all_sections, finding
from support.comparisons import FACTORS, LABELS, TREATMENTS, record
from support.factorials import compared, factorial
from support.swept import Figures, factorial_record

TITLE = "A title"


def heading(comparison: Comparison, name: str) -> str:
    return finding(StudyView(comparison), name, TITLE)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return analyse(record(seeds=3, weights={"step_seconds": 1.0}, target_loss=3.0))


@pytest.fixture(scope="module")
def crossed() -> Comparison:
    """Layers and Lion, of which Lion helps with two layers and hurts with four."""
    sizes = {("2", "lion"): 0.8, ("4", "none"): 2.0, ("4", "lion"): 2.5}

    def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
        size = sizes.get((levels["model.n_layer"], levels["optimizations"]), 1.0)
        return size, size, 1.0

    return compared(factorial({"model.n_layer": ("2", "4"), "optimizations": ("none", "lion")}), of, between=0.005)


def test_the_front_names_its_rows(comparison: Comparison) -> None:
    assert heading(comparison, "pareto_front") == f"No other row beats {LABELS[0]}, {LABELS[3]} and {LABELS[4]}"


def test_a_front_with_all_rows_is_no_finding() -> None:
    assert (
        heading(
            analyse(
                record(seeds=3, treatments=TREATMENTS[:1], factors={**FACTORS, TREATMENTS[0]: (0.5, 0.5, 2.0, 0.0)})
            ),
            "pareto_front",
        )
        == TITLE
    )


def test_rows_with_a_loss_as_good_are_counted(comparison: Comparison) -> None:
    assert heading(comparison, "equivalence") == "5 of 5 rows have a loss as good as the baseline's"
    assert heading(analyse(record(seeds=1)), "equivalence") == "1 of 5 rows has a loss as good as the baseline's"


def test_the_first_rank_the_limit_and_the_target_are_named(comparison: Comparison) -> None:
    assert heading(comparison, "ranking") == "sdpa_attention ranks first"
    assert heading(comparison, "limits").startswith("The limit is ")
    assert heading(comparison, "limits").endswith(" of 6 rows")
    target = "sdpa_attention reaches a training loss of 3 first, in 88 % of the baseline's time"
    assert heading(comparison, "target_loss") == target
    assert heading(analyse(record(seeds=3)), "target_loss") == TITLE, "no target was stated"


def test_the_error_of_predictions_is_the_largest(comparison: Comparison) -> None:
    assert heading(comparison, "predictions") == "Memory was predicted within 0.2 %"
    without = {one: {"predicted": None} for one in ("baseline", "baseline (again)", *TREATMENTS)}
    assert heading(analyse(record(changes=without)), "predictions") == TITLE


def test_expectations_are_counted() -> None:
    lower = [Expectation(row=row, metric="tensors_peak_bytes", change="lower") for row in TREATMENTS[:2]]
    higher = Expectation(row=TREATMENTS[0], metric="tensors_peak_bytes", change="higher")
    said = (
        ((lower[0],), "The expectation is confirmed"),
        (tuple(lower), "Both expectations are confirmed"),
        ((higher,), "The expectation is refuted (sdpa_attention)"),
        ((*lower, higher), "2 of 3 expectations are confirmed, 1 is refuted (sdpa_attention)"),
        ((), TITLE),
    )
    for expects, text in said:
        assert heading(analyse(record(seeds=3, expects=expects)), "expectations") == text


def test_expectations_that_were_not_measured_are_not_confirmed() -> None:
    none = "neither confirmed nor refuted"
    unknown = Expectation(row=TREATMENTS[1], metric="val_loss", change="higher", size=0.5)
    assert heading(analyse(record(seeds=1, expects=(unknown,))), "expectations") == f"The expectation is {none}"
    assert (
        heading(analyse(record(seeds=1, expects=(unknown,) * 2)), "expectations")
        == "None of 2 expectations are confirmed, and none is refuted"
    )


def test_factors_have_the_largest_effect_whether_they_add_up_and_signs(crossed: Comparison) -> None:
    assert heading(crossed, "effects") == "4 layers changes memory most: +150.0 % on average"
    assert heading(crossed, "additivity") == (
        "Changes do not add up: 4 layers · lion changes memory by +150 %, where its parts sum to +80 %"
    )
    assert "change" in heading(crossed, "sign_changes")
    assert heading(crossed, "sign_changes").endswith(" sign with another factor")


def test_changes_that_add_up_are_said_to() -> None:
    def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
        return 1 + 0.5 * (levels["model.n_layer"] == "4") - 0.2 * (levels["optimizations"] == "lion"), 1.0, 1.0

    found = compared(factorial({"model.n_layer": ("2", "4"), "optimizations": ("none", "lion")}), of)
    assert heading(found, "additivity") == "Changes add up, as far as this study can tell"


def deviating(blocks: int = 5, seeds: int = 3, **whole: float) -> str:
    """The finding on a study in which both changes together raise the loss, or another figure, beyond their sum."""
    names = ("memory", "time", "loss")

    def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
        both = levels["model.n_layer"] == "4" and levels["optimizations"] == "lion"
        memory, time, loss = (whole.get(name, 1.0) if both else 1.0 for name in names)
        return memory, time, loss

    rows = factorial({"model.n_layer": ("2", "4"), "optimizations": ("none", "lion")})
    protocol = Protocol(blocks=blocks, processes=1, resident=7, available_bytes=1)
    return heading(compared(rows, of, seeds=seeds, apart=1e-3, between=1e-4, protocol=protocol), "additivity")


@pytest.mark.parametrize(
    ("whole", "what"),
    [
        ({"loss": 1.07}, "the loss by +7 %"),
        ({"loss": 1.07, "time": 1.2}, "time by +20 %"),
        ({"loss": 1.07, "time": 1.2, "memory": 1.1}, "memory by +10 %"),
        ({"loss": 1.07, "memory": 1.1, "blocks": 0}, "the loss by +7 %"),
    ],
)
def test_a_deviation_of_the_loss_is_said_as_well(whole: Mapping[str, Any], what: str) -> None:
    said = deviating(**whole)
    assert said.endswith(f"s do not add up: 4 layers · lion changes {what}, where its parts sum to 0 %")


def test_changes_add_up_only_where_no_deviation_says_otherwise() -> None:
    clear = "Changes add up, as far as this study can tell"
    assert deviating() == clear
    assert deviating(loss=1.008) == TITLE, "it can be told from zero, and is too small for a word"
    assert deviating(loss=1.07, seeds=1) == TITLE, "without an interval nothing can be told"
    assert deviating(time=1.3, seeds=1) == TITLE


def test_the_best_rate_is_that_of_the_headline() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return 1, 1, 2.3 + abs(float(levels["training.learning_rate"]) / 1e-3 - 1)

    found = analyse(factorial_record({"training.learning_rate": [1e-3, 3e-4, 1e-2]}, of, seeds=1))
    assert heading(found, "learning_rates") == "The best learning rate is 0.001, on one seed"


def test_published_changes_that_agree_are_counted() -> None:
    document = {
        "document": "A document",
        "control": "A",
        "columns": [{"name": "GB", "metric": "tensors_peak_bytes", "digits": 1}],
        "rows": [
            {"name": "A", "row": "baseline", "figures": [100.0]},
            {"name": "B", "row": TREATMENTS[0], "figures": [72.0]},
            {"name": "C", "row": TREATMENTS[1], "figures": [200.0]},
        ],
    }
    found = analyse(record(seeds=3, published=PublishedStudy.model_validate(document)))
    assert heading(found, "published") == "1 of 2 published changes go the same way here"


def test_a_part_without_a_finding_keeps_its_title(comparison: Comparison) -> None:
    for name in ("losses", "percent_changes", "additivity", "published", "sign_changes"):
        assert heading(analyse(record(seeds=3, treatments=TREATMENTS[:1])), name) == TITLE


def test_findings_are_of_parts_that_exist() -> None:
    from assay.report.comparison.figures import TITLES
    from assay.report.study.view import _FINDINGS

    assert set(_FINDINGS) <= {*TITLES, *(one.name for one in all_sections())}
