"""An answer is computed once, for its page, its data, the terminal and the last lines together."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from assay.analysis.choose import answer as answering
from assay.analysis.comparison import analyse
from assay.cli.scaling_study import study_report
from assay.cli.study_output import finish
from assay.config import Home
from assay.dashboard.study_answer import Answers
from assay.report.study import view as viewing
from assay.scaling import scaling_study as fitting
from assay.studies.folder import StudyFolder
from support.factorials import compared, factorial
from support.scaled import scaled_record

FACTORS = {"model.n_layer": ("2", "4"), "optimizations": ("none", "lion")}
STUDY = "20261101-101010-abcde12"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a study is answered, a law is fitted for its answer, and each section is filled."""
    found: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            found[name] += 1
            return function(*given)

        return counted

    for name, module in (("finished_rows", answering), ("fit", fitting)):  # both are called once by an answer
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    filled = (one._replace(content=counting(one.name, one.content)) for one in viewing.all_sections())
    sections = tuple(filled)
    monkeypatch.setattr(viewing, "all_sections", lambda: sections)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a study of scaling that nobody ran."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    found = Home(tmp_path)
    folder = StudyFolder(found.reports / STUDY)
    folder.path.mkdir(parents=True)
    folder.write_record(scaled_record().model_copy(update={"id": STUDY}))
    return found


@pytest.mark.parametrize("as_json", [False, True])
def test_a_study_is_answered_once(
    home: Home, as_json: bool, capsys: pytest.CaptureFixture[str], calls: Counter[str]
) -> None:
    comparison = compared(factorial(FACTORS), lambda _: (1.2, 1.1, 1.0))
    with pytest.raises(typer.Exit):
        finish(lambda **given: comparison, None, as_json)
    assert calls == {"finished_rows": 1, **{section.name: 1 for section in viewing.all_sections()}}
    assert comparison.record.id in capsys.readouterr().out


def test_a_law_is_fitted_once_for_its_report_and_its_page(
    home: Home, capsys: pytest.CaptureFixture[str], calls: Counter[str]
) -> None:
    study_report(STUDY)
    assert calls == {"fit": 1}
    assert "The law of the small runs predicted a run with" in capsys.readouterr().out


def test_the_dashboard_fits_no_law_to_know_that_a_study_has_one(home: Home, calls: Counter[str]) -> None:
    assert Answers(home).of(StudyFolder(home.reports / STUDY)) is None
    assert calls == {}


def test_a_study_without_enough_runs_for_a_law_has_its_table(home: Home) -> None:
    whole = scaled_record()
    few = whole.model_copy(update={"id": "20261101-101010-abcde13", "cells": whole.cells[:3]})
    folder = StudyFolder(home.reports / few.id)
    folder.path.mkdir(parents=True)
    folder.write_record(few)
    found = Answers(home).of(folder)
    assert found is not None
    assert len(found.rows) == len(analyse(few).rows) + 2
