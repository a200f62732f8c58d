"""A study of one wave under a limit of time: what begins, what the record has of the rest, and what `resume` runs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from assay.analysis.comparison import analyse
from assay.config import Home, Run
from assay.data.progress import silent
from assay.errors import UsageError
from assay.launch.prepare import ReadyRun
from assay.optimizations import resolve_run
from assay.records.prediction import Predicted
from assay.records.study import BASELINE, Cell, ComparisonRecord, StudyEnding
from assay.studies.execution import ready as preparing
from assay.studies.execution import run as module
from assay.studies.execution.deadline import Deadline, process_seconds, with_rest
from assay.studies.execution.fold import Progress
from assay.studies.folder import StudyFolder
from assay.studies.kinds.factorial import Factorial
from support.fake_studies import BASE, fake_cells

VARY = {"model.bias": ["true", "false"], "training.learning_rate": ["1e-3", "3e-4"]}
CELLS: tuple[Cell, ...] = Factorial.model_validate({"vary": VARY, "seeds": 1, "processes": 1}).cells(BASE)
EACH = process_seconds(CELLS[0].run, 1.0, 0)
"""Predicted seconds of each cell, whose steps would take a second."""

Limited = Callable[..., ComparisonRecord]


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Run the cells, or resume a study, in as many seconds as some cells would take; the clock stands still."""

    def known(run: Run, home: Home, progress: object) -> ReadyRun:
        predicted = Predicted(tensors_peak_bytes=990, step_seconds=1.0)
        return ReadyRun(resolve_run(run), home.ready().data, "0" * 12, predicted)

    fake_cells(monkeypatch)
    monkeypatch.setattr(preparing, "ready", known)
    monkeypatch.setattr(module, "Deadline", partial(Deadline, clock=lambda: 0.0))

    def run(cells: float | None, study: str = "", mode: module.Mode = module.Mode.MISSING) -> ComparisonRecord:
        hours = None if cells is None else cells * EACH / 3600
        tell: module.Listener = lambda news: None  # noqa: E731
        how = module.Execution(Home(tmp_path), 2, None, "test", silent, tell, kind="factorial", hours=hours)
        if study:
            return module.resume_study(StudyFolder(tmp_path / "reports" / study), how, mode)
        return module.measure_design(CELLS, BASE, how)

    return run


def rows(record: ComparisonRecord, wave: int) -> list[str]:
    return [one.cell.treatment for one in record.cells if one.wave == wave]


SINGLE = ["model.bias=true, training.learning_rate=3e-4", "model.bias=false, training.learning_rate=1e-3"]
BOTH = "model.bias=false, training.learning_rate=3e-4"


def test_the_rest_is_listed_and_gets_a_control_of_its_own(limited: Limited, tmp_path: Path) -> None:
    record = limited(4.5)
    assert record.ending is StudyEnding.BUDGET_REACHED
    assert sorted(rows(record, 0)) == sorted([BASELINE, f"{BASELINE} (again)", *SINGLE]), "rows that change one factor"
    assert [cell.treatment for cell in record.held_back] == [BASELINE, BOTH]
    assert record.treatments == (SINGLE[0], SINGLE[1], BOTH), "in the order of the design"
    whole = limited(None, record.id)
    assert (whole.ending, whole.held_back) == (StudyEnding.COMPLETE, ())
    assert sorted(rows(whole, 1)) == [BASELINE, BOTH], "they took turns with each other"
    assert len({one.cell.name for one in whole.cells}) == len(whole.cells) == 6


def test_the_answer_names_what_it_cannot_conclude(limited: Limited) -> None:
    said = " ".join(analyse(limited(4.5)).caveats)
    assert f"ended the study before 2 of 6 runs could begin: baseline, seed 0, time 3; {BOTH}, seed 0." in said
    assert f"No process, so no conclusion: {BOTH}." in said
    assert "because combinations are missing: bias false, rate 3e-4, bias false × rate 3e-4." in said


def test_a_limit_that_is_too_short_leaves_nothing_behind(limited: Limited, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-hours .* is too short"):
        limited(2.5)
    assert not [*(tmp_path / "reports").glob("*"), *(tmp_path / "runs").glob("*")]


def test_a_second_limit_divides_the_rest_again(limited: Limited, tmp_path: Path) -> None:
    first = limited(3.5)
    assert [cell.treatment for cell in first.held_back] == [BASELINE, SINGLE[1], BOTH]
    second = limited(2.5, first.id)
    assert [cell.treatment for cell in second.held_back] == [BASELINE, BOTH]
    assert sorted(rows(second, 1)) == [BASELINE, SINGLE[1]]
    whole = limited(None, first.id)
    assert sorted(rows(whole, 2)) == [BASELINE, BOTH]
    assert len({one.cell.name for one in whole.cells}) == len(whole.cells) == 7


def test_a_wave_that_a_limit_adds_takes_no_number_that_was_used(limited: Limited, tmp_path: Path) -> None:
    """A cell ran alone after an interruption, so in a wave after the plan's; then a limit adds a wave to the plan."""
    record = limited(None)
    folder = StudyFolder(tmp_path / "reports" / record.id)
    plan = folder.plan()
    assert plan is not None
    rest = tuple(cell for cell in plan.cells if cell.treatment == BOTH)
    ended = [one.model_copy(update={"wave": 1}) for one in record.cells if one.cell.treatment != BOTH]
    missing = Progress(ended, waves=2).missing(with_rest(plan, rest))
    assert [(number, [cell.treatment for cell in wave]) for number, wave in missing] == [(2, [BASELINE, BOTH])]


@pytest.mark.parametrize(("blocks", "said"), [(0, "at least one timed block"), (10**9, "has at most 10000")])
def test_blocks_have_limits(blocks: int, said: str, tmp_path: Path) -> None:
    how = module.Execution(Home(tmp_path), blocks, None, "test", silent, lambda news: None)
    with pytest.raises(UsageError, match=said):
        how.check()
