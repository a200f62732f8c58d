"""Sections on factors: on a terminal, on the page, in JSON, and where they do not apply."""

import json

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.status import Status
from assay.report.kit.blocks import Table
from assay.report.kit.view import render
from assay.report.study.view import StudyView, all_sections
from support.comparisons import TREATMENTS, record
from support.factorials import compared, factorial, study

FACTORS = {"model.n_layer": ("2", "4"), "optimizations": ("none", "lion", "placebo: gradient scaler")}
SIZES = {"4": 1.7, "lion": 0.8}
NAMES = ("effects", "additivity", "percent_changes")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    def figures(levels: dict[str, str]) -> tuple[float, float, float]:
        size = SIZES.get(levels["model.n_layer"], 1.0) * SIZES.get(levels["optimizations"], 1.0)
        return size, size, 1.0

    return compared(factorial(FACTORS), figures, between=0.005, apart=0.001)


def shown(comparison: Comparison) -> dict[str, tuple[object, ...]]:
    return {one.section.name: one.blocks for one in StudyView(comparison).sections if one.section.name in NAMES}


def rows(comparison: Comparison, section: str, metric: str) -> dict[str, tuple[str, ...]]:
    tables = (one for one in shown(comparison)[section] if isinstance(one, Table) and one.columns[0] == metric)
    return {name: tuple(texts) for name, *texts in next(tables).rows}


def test_each_effect_is_a_line_with_both_scales(comparison: Comparison) -> None:
    assert rows(comparison, "effects", "tensors, peak") == {
        "4 layers": ("+70.0 %", "+65.3"),
        "lion": ("−20.0 %", "−27.0"),
        "placebo: gradient scaler": ("0.0 %", "0.0"),
        "4 layers × lion": ("0.0 %", "−14.0"),
        "4 layers × placebo: gradient scaler": ("0.0 %", "0.0"),
    }
    ratio, points = rows(comparison, "effects", "step time")["4 layers"]
    assert ratio.startswith("+")
    assert ratio.endswith("]")
    assert points.endswith("]")


def test_a_row_with_two_changes_is_compared_with_their_sum(comparison: Comparison) -> None:
    line = rows(comparison, "additivity", "tensors, peak")["4 layers · lion"]
    assert line == ("+36.0 %", "+50.0 %", "−14.0", "0.0 %")


def test_a_grid_has_both_controls(comparison: Comparison) -> None:
    grid = rows(comparison, "percent_changes", "tensors, peak")
    assert grid["lion"] == ("−20.0 % (−20.0 %)", "+36.0 % (−20.0 %)")


def test_the_page_has_tables_and_figures_and_json_the_values(comparison: Comparison) -> None:
    page = render(comparison)
    for one in all_sections():
        if one.name in NAMES:
            assert one.title in page
            assert f'aria-label="{one.title}: ' in page.replace("&#39;", "'")
    found = json.loads(json.dumps(StudyView(comparison).values()["sections"], allow_nan=False))
    assert {one["metric"] for one in found["effects"]} >= {"tensors_peak_bytes", "step_seconds", "val_loss"}
    assert found["additivity"][0]["deviations"][0]["points"]["value"] == pytest.approx(-0.14, abs=1e-3)
    assert found["percent_changes"][0]["fields"][1][1]["change"] == pytest.approx(0.36, abs=1e-3)


def test_few_seeds_have_a_sentence_and_no_interval() -> None:
    found = shown(compared(factorial({"a": ("0", "1"), "b": ("0", "1")}), lambda _: (1.0, 1.0, 1.0), seeds=1))
    said = [one for one in found["effects"] if isinstance(one, str)]
    assert "No intervals of validation loss: they need three seeds that have all rows." in said
    assert "No intervals of process, peak, step time: give more seeds or repeats." in said


def test_a_study_of_losses_only_has_no_times(comparison: Comparison) -> None:
    protocol = comparison.record.protocol.model_copy(update={"blocks": 0})
    found = shown(analyse(comparison.record.model_copy(update={"protocol": protocol})))
    titles = {one.columns[0] for one in found["effects"] if isinstance(one, Table)}
    assert titles == {"tensors, peak", "process, peak", "validation loss"}


def test_changes_that_cannot_be_told_apart_are_named() -> None:
    half = [{**row, "c": str(int(row["a"]) ^ int(row["b"]))} for row in factorial({"a": "01", "b": "01"})]
    found = shown(compared(half, lambda _: (1.0, 1.0, 1.0)))
    assert (
        "Cannot be told apart: a 1 = b 1 × c 1. The figure is of the first if the others are zero." in found["effects"]
    )
    short = [row for row in factorial({"a": "012", "b": "01"}) if tuple(row.values()) != ("2", "1")]
    said = " ".join(one for one in shown(compared(short, lambda _: (1.0, 1.0, 1.0)))["effects"] if isinstance(one, str))
    assert "do not determine 3 other effects, for which combinations are missing: a 2; b 1; a 2 × b 1." in said


def test_a_level_of_which_every_run_failed_is_named() -> None:
    def lost(level: str, *sizes: str) -> list[object]:
        whole = study(factorial({"model.n_layer": sizes, "optimizations": ("none", "lion")}), lambda _: (1.0, 1.0, 1.0))
        cells = tuple(
            one.model_copy(update={"result": one.result.model_copy(update={"status": Status.DIVERGED})})
            if level in one.cell.levels.values()
            else one
            for one in whole.cells
        )
        return list(shown(analyse(whole.model_copy(update={"cells": cells})))["effects"])

    assert lost("8", "2", "4", "8")[-2:] == [
        "The measured rows do not determine 2 other effects, for which combinations are missing: 8 layers; "
        "8 layers × lion.",
        "No average includes 8 layers, of which no row has a figure.",
    ]
    assert lost("4", "2", "4") == [
        "The measured rows do not determine 3 effects, for which combinations are missing: 4 layers; lion; "
        "4 layers × lion."
    ]


def test_a_comparison_of_single_optimizations_has_none_of_these_sections() -> None:
    assert shown(analyse(record(treatments=TREATMENTS[:3]))) == {}
