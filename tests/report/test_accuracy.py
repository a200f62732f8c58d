"""The page of predictions against measurements: its tables, its figure, escaped names, and the same bytes each time."""

from pathlib import Path

import pytest

from assay.analysis.accuracy import Accuracy, PredictedFigure
from assay.errors import UsageError
from assay.report.accuracy import AccuracyView, render_accuracy, write_accuracy_page
from support.figures import drawn

FOUND = Accuracy(
    (
        PredictedFigure("run-1", "A & B, 1 thread, torch 2", (), "memory", 2**20, 2**20),
        PredictedFigure("run-1", "A & B, 1 thread, torch 2", (), "time", 0.01, 0.02),
        PredictedFigure("run-2", "C, torch 2", ("sdpa_attention",), "memory", 3 * 2**20, 2**21),
    ),
    runs=2,
)


def test_the_page_has_the_errors_and_a_point_for_each_run() -> None:
    with drawn():
        page = render_accuracy(FOUND)
    assert page.startswith("<!doctype html>")
    for text in ("A &amp; B, 1 thread", "+50.0 %", "−50.0 %", "sdpa_attention", "run-2", "<svg", "2 runs with"):
        assert text in page
    assert "A & B" not in page
    assert "mathdefault" not in page
    with drawn():
        assert render_accuracy(FOUND) == page


def test_without_a_run_the_page_says_so_and_has_no_figure() -> None:
    empty = Accuracy((), 0)
    page = render_accuracy(empty)
    assert "No run here has both a prediction and a measurement" in page
    assert "<svg" not in page
    assert AccuracyView(empty).figure() is None


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.html"
    assert write_accuracy_page(FOUND, path) == write_accuracy_page(FOUND, path)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="no page"):
        write_accuracy_page(FOUND, tmp_path / "notes")
