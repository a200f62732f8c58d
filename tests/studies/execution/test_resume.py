"""A study whose process died at any of its news: exactly the missing cells run again, none twice and none lost."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home, Run, validate
from assay.errors import UsageError
from assay.executors.base import Ended, News, Planned, RoundEnded, Started, Stepped
from assay.executors.news import from_events
from assay.launch import spawn
from assay.launch.prepare import ReadyRun
from assay.optimizations import resolve_run
from assay.records.prediction import Predicted
from assay.records.status import Status
from assay.records.study import ComparisonRecord, StudyEnding
from assay.studies.execution import ready as preparing
from assay.studies.execution import run as module
from assay.studies.execution.fold import fold
from assay.studies.execution.order import shuffle_rows
from assay.studies.folder import StudyFolder, find
from support.designs import design

FAKE_WORKER = Path(__file__).parent.parent.parent / "support" / "fake_worker.py"
BASE = validate(
    {
        "model": {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, "vocab_size": 256},
        "training": {"steps": 6, "batch_size": 4},
    }
)
CELLS = design(BASE, ["sdpa_attention"], seeds=2)


class Killed(BaseException):
    """Stands for a kill −9: nothing of the study's own code runs after it."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    def no_corpus(run: Run, home: Home, progress: object) -> ReadyRun:
        return ReadyRun(resolve_run(run), home.ready().data, "0" * 12, Predicted(tensors_peak_bytes=990))

    monkeypatch.setattr(spawn, "WORKER", (sys.executable, "-S", str(FAKE_WORKER)))
    monkeypatch.setattr(preparing, "ready", no_corpus)
    monkeypatch.setattr(
        module, "elsewhere", lambda cells, machine, digest: {}
    )  # the fake worker's machine is not this one
    monkeypatch.delenv("FAKE", raising=False)
    return Home(tmp_path)


def run(home: Home, tell: Any) -> ComparisonRecord:
    silent = lambda message, fraction: None  # noqa: E731
    return module.measure_design(CELLS, BASE, module.Execution(home, 2, None, "test", silent, tell))


def resume(home: Home, heard: list[News] | None = None) -> ComparisonRecord:
    tell = (lambda news: None) if heard is None else heard.append
    how = module.Execution(home, 1, None, "", lambda message, fraction: None, tell)
    return module.resume_study(find(home, "last"), how)


def dying_at(number: int) -> Any:
    left = iter(range(number))

    def tell(news: News) -> None:
        if next(left, None) is None:
            raise Killed

    return tell


_SOME, _OTHERS = (0, 2, 14, 21, 43), (1, 9, 19, 20, 24, 30)


@pytest.mark.parametrize("number", [*_SOME, *(pytest.param(one, marks=pytest.mark.slow) for one in _OTHERS)])
def test_exactly_the_missing_cells_run_again(home: Home, number: int) -> None:
    with pytest.raises(Killed):
        run(home, dying_at(number))
    folder = find(home, "last")
    plan = folder.plan()
    assert plan is not None
    assert folder.record() is None
    before = {one.cell.name: one.result.run for one in fold(plan, folder.events(), home).cells}
    heard: list[News] = []
    record = resume(home, heard)
    assert record.ending is StudyEnding.COMPLETE
    assert {one.cell.name for one in record.cells} == {cell.name for cell in CELLS}
    assert set(Counter(one.cell.name for one in record.cells).values()) == {1}
    assert {one.result.status for one in record.cells} == {Status.DONE}
    started = {one.cell.name for one in heard if isinstance(one, Started)}
    assert started == {cell.name for cell in plan.cells} - before.keys()
    assert all(one.result.run == before.get(one.cell.name, one.result.run) for one in record.cells)
    assert folder.record() == record


def test_a_damaged_record_is_written_anew_and_no_run_is_trained_again(home: Home) -> None:
    made = run(home, lambda news: None)
    folder = find(home, "last")
    folder.record_file.write_text("{")
    with pytest.raises(UsageError, match=f"`assay study resume {folder.id}` writes it anew from the runs"):
        folder.record()
    heard: list[News] = []
    assert resume(home, heard) == made == folder.record()
    assert not [one for one in heard if isinstance(one, Started)]


def test_rows_run_in_the_order_of_the_plan_that_is_shuffled_now_and_was_not_before(home: Home) -> None:
    cells = design(BASE, ["sdpa_attention", "bf16_mixed"], seeds=3)
    with pytest.raises(Killed):
        module.measure_design(
            cells, BASE, module.Execution(home, 2, None, "test", lambda message, fraction: None, dying_at(0))
        )
    folder = find(home, "last")
    plan = folder.plan()
    assert plan is not None
    designed, planned = ([cell.name for cell in some] for some in (cells, plan.cells))
    assert designed != planned == [cell.name for cell in shuffle_rows(cells)]
    earlier = [tuple(cell for cell in cells if cell.seed == seed) for seed in range(3)]
    folder.write_plan(plan.model_copy(update={"waves": tuple(earlier)}))
    heard: list[News] = []
    assert resume(home, heard).ending is StudyEnding.COMPLETE
    assert [one.cell.name for one in heard if isinstance(one, Started)] == designed


def test_a_complete_study_has_nothing_to_run_and_keeps_its_record(home: Home) -> None:
    record = run(home, lambda news: None)
    heard: list[News] = []
    assert resume(home, heard) == record
    assert not [one for one in heard if isinstance(one, Started)]


def test_cells_that_take_no_turns_with_ended_ones_have_a_wave_of_their_own(home: Home) -> None:
    seen: list[News] = []

    def dies_after_an_end(news: News) -> None:
        seen.append(news)
        if isinstance(news, Ended):
            raise Killed

    with pytest.raises(Killed):
        run(home, dies_after_an_end)
    record = resume(home)
    waves = {one.cell.name: one.wave for one in record.cells}
    first = next(one.cell.name for one in seen if isinstance(one, Ended))
    assert [name for name, wave in waves.items() if wave == waves[first]] == [first]


def test_another_process_can_follow_it(home: Home) -> None:
    heard: list[News] = []
    run(home, heard.append)
    folder = find(home, "last")
    plan = folder.plan()
    assert plan is not None
    told = list(from_events(folder.events(), plan.waves, plan.protocol.blocks, home, plan.id))
    assert told == [one for one in heard if not isinstance(one, Stepped)]
    assert isinstance(told[0], Planned)
    assert sum(isinstance(one, RoundEnded) for one in told) == 4


def test_an_old_comparison_cannot_be_resumed(home: Home) -> None:
    record = run(home, lambda news: None)
    StudyFolder(home.reports / record.id).plan_file.unlink()
    with pytest.raises(UsageError, match="earlier version, without a plan"):
        resume(home)
