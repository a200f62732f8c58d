"""The data of a page: every row, process and loss of the record, and the same bytes for the same record."""

import json
from pathlib import Path

import pandas
import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.report.page.data import frames, write_data
from assay.report.study.view import StudyView
from support.comparisons import record


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return analyse(record())


def test_cells_have_the_figures_of_the_record(comparison: Comparison) -> None:
    cells = frames(comparison)["cells"]
    assert len(cells) == len(comparison.record.cells)
    for line, one in zip(cells.to_dict("records"), comparison.record.cells, strict=True):
        assert (line["row"], line["seed"], line["run"]) == (one.cell.treatment, one.cell.seed, one.result.run)
        assert line["val_loss"] == one.result.val_loss
        assert line["tensors_peak_bytes"] == one.result.memory.tensors_peak_bytes
    assert not cells.duplicated(["row", "seed", "process", "replicate"]).any()


def test_losses_have_every_step_and_every_evaluation(comparison: Comparison) -> None:
    losses = frames(comparison)["losses"]
    curves = [one.curve for one in comparison.record.cells]
    trained = [value for curve in curves for value in curve.train_loss if value is not None]
    evaluated = [value for curve in curves for _, value in curve.evaluations if value is not None]
    assert list(losses["train_loss"].dropna()) == trained
    assert list(losses["val_loss"].dropna()) == evaluated
    assert trained
    assert evaluated


def test_both_kinds_of_files_have_the_same_values_and_repeat(comparison: Comparison, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    write_data(StudyView(comparison), first)
    write_data(StudyView(comparison), again)
    names = sorted(one.name for one in first.iterdir())
    tables = ("rows", "cells", "losses", "memory")
    assert names == sorted(["answer.json", *(f"{name}.{kind}" for name in tables for kind in ("csv", "parquet"))])
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    for name in tables:
        text, binary = pandas.read_csv(first / f"{name}.csv"), pandas.read_parquet(first / f"{name}.parquet")
        assert list(text.columns) == list(binary.columns)
        assert len(text) == len(binary) > 0


def test_steps_have_their_seconds_and_memory_sums_to_the_predicted_peak(comparison: Comparison) -> None:
    found = frames(comparison)
    assert list(found["losses"]["seconds"].dropna()) == [
        value for one in comparison.record.cells for value in one.curve.step_seconds
    ]
    alive = found["memory"].groupby(["row", "place"])["bytes"].sum().groupby("row").max()
    for row in (comparison.baseline, *comparison.rows):
        assert row.predicted is not None
        assert alive[row.treatment] == row.predicted.tensors_peak_bytes


def test_the_answer_is_beside_the_page(comparison: Comparison, tmp_path: Path) -> None:
    write_data(StudyView(comparison), tmp_path)
    written = json.loads((tmp_path / "answer.json").read_text())
    assert [row["treatment"] for row in written["rows"]] == list(comparison.record.treatments)
    assert written["sections"]["answer"]["text"]


def test_a_study_without_cells_has_empty_tables(comparison: Comparison) -> None:
    empty = analyse(comparison.record.model_copy(update={"cells": ()}))
    assert frames(empty)["cells"].empty
    assert frames(empty)["losses"].empty
    assert frames(empty)["memory"].empty
