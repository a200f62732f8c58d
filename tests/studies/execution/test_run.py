"""The whole way, with real processes that train nothing."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home, Run, validate
from assay.errors import UsageError
from assay.executors.base import News, Planned, Turn
from assay.launch import spawn as launcher
from assay.launch.prepare import ReadyRun
from assay.optimizations import resolve_run
from assay.records.prediction import Predicted
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import ComparisonRecord, StudyEnding
from assay.studies.drift import FIRST_STEPS, NUDGED
from assay.studies.execution import ready as preparing
from assay.studies.execution import run as module
from assay.studies.execution.deadline import START_SECONDS
from assay.studies.folder import StudyFolder
from support.designs import design

FAKE_WORKER = Path(__file__).parent.parent.parent / "support" / "fake_worker.py"
BASE = validate(
    {
        "model": {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, "vocab_size": 256},
        "training": {"steps": 10, "batch_size": 4},
    }
)


def no_corpus(run: Run, home: Home, progress: object) -> ReadyRun:
    return ReadyRun(resolve_run(run), home.ready().data, "0" * 12, Predicted(tensors_peak_bytes=990))


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ComparisonRecord]:
    monkeypatch.setattr(launcher, "WORKER", (sys.executable, "-S", str(FAKE_WORKER)))
    monkeypatch.setattr(preparing, "ready", no_corpus)
    monkeypatch.delenv("FAKE", raising=False)

    def compare(steps: int = 10, **changes: Any) -> ComparisonRecord:
        run = BASE.model_copy(update={"training": BASE.training.model_copy(update={"steps": steps})})
        counts = {key: changes.pop(key, 1) for key in ("seeds", "processes")}
        how: dict[str, Any] = {
            "home": Home(tmp_path),
            "blocks": 2,
            "timeout": None,
            "title": "test",
            "prepare": lambda message, fraction: None,
            "tell": lambda news: None,
        }
        return module.measure_design(
            design(run, ["sdpa_attention"], **counts), run, module.Execution(**{**how, **changes})
        )

    return compare


def test_cells_rounds_and_curves_are_kept(measure: Callable[..., ComparisonRecord], tmp_path: Path) -> None:
    record = measure(seeds=2)
    assert [one.result.status for one in record.cells] == [Status.DONE] * 6
    assert (record.seeds, record.treatments, record.ending) == ((0, 1), ("sdpa_attention",), StudyEnding.COMPLETE)
    assert [len(one.order) for one in record.rounds] == [3] * 4
    assert all(len(one.curve.train_loss) == 10 for one in record.cells)
    assert all((tmp_path / "runs" / one.result.run / "result.json").exists() for one in record.cells)
    assert StudyFolder(tmp_path / "reports" / record.id).record() == record


def test_nudged_baselines_run_last_without_turns_and_are_no_cells(measure: Callable[..., ComparisonRecord]) -> None:
    news: list[News] = []
    record = measure(steps=FIRST_STEPS + 1, tell=news.append)
    assert [one.cell.treatment for one in record.nudged] == [NUDGED]
    assert (record.nudged[0].result.status, len(record.nudged[0].curve.train_loss)) == (Status.DONE, FIRST_STEPS + 1)
    assert record.nudged[0].result.config.nudge == 1
    assert NUDGED not in {one.cell.treatment for one in record.cells}
    assert all(len(one.order) == 3 for one in record.rounds)
    turns = [(one.cell.treatment, one.piece) for one in news if isinstance(one, Turn)]
    assert turns[-1] == (NUDGED, "start")


def test_a_killed_child_is_recorded_and_the_comparison_goes_on(
    measure: Callable[..., ComparisonRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = launcher.start

    def start_one_that_dies(ready: ReadyRun, *args: Any, **options: Any) -> Any:
        monkeypatch.setenv("FAKE", "die4" if ready.run.optimizations else "")
        return begin(ready, *args, **options)

    monkeypatch.setattr(preparing, "start", start_one_that_dies)
    endings = {one.cell.treatment: one.result for one in measure().cells}
    dead: RunResult = endings.pop("sdpa_attention")
    assert dead.status is Status.KILLED
    assert dead.steps == 4
    assert {one.status for one in endings.values()} == {Status.DONE}


def test_an_interrupt_saves_what_there_is(measure: Callable[..., ComparisonRecord], tmp_path: Path) -> None:
    presses = iter([True])

    def interrupt(news: News) -> None:
        if isinstance(news, Turn) and (news.piece, news.number) == ("block", 2) and next(presses, False):
            raise KeyboardInterrupt

    record = measure(seeds=2, tell=interrupt)
    assert record.ending is StudyEnding.INTERRUPTED
    assert {one.cell.seed for one in record.cells} == {0}
    assert {one.result.status for one in record.cells} == {Status.INTERRUPTED}
    assert StudyFolder(tmp_path / "reports" / record.id).record() == record


@pytest.mark.parametrize("change", [{"blocks": 0}, {"timeout": -1.0}, {"seeds": 0}, {"processes": 0}])
def test_an_impossible_study_leaves_nothing_behind(
    measure: Callable[..., ComparisonRecord], tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        measure(**change)
    assert list(tmp_path.iterdir()) == []


def test_a_faulty_extension_ends_a_study_before_its_first_cell(
    measure: Callable[..., ComparisonRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[ReadyRun] = []

    def refused(prepared: Iterable[ReadyRun], home: Home, tell: object) -> None:
        tried.extend(prepared)
        raise UsageError("a step with mine fails")

    monkeypatch.setattr(module, "try_own", refused)
    with pytest.raises(UsageError, match="a step with mine fails"):
        measure()
    assert len(tried) == 3  # the baseline twice, and its treatment
    assert not list((tmp_path / "reports").iterdir())
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("known", [True, False])
def test_the_plan_is_told_with_the_predicted_time(
    measure: Callable[..., ComparisonRecord], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def prepared(run: Run, home: Home, progress: object) -> ReadyRun:
        step = 1.0 if known else None
        return ReadyRun(resolve_run(run), home.ready().data, "0" * 12, Predicted(step_seconds=step), eval_batches=3)

    monkeypatch.setattr(preparing, "ready", prepared)
    told: list[News] = []
    measure(seeds=2, tell=told.append)
    plan = next(one for one in told if isinstance(one, Planned))
    each = START_SECONDS + 10 + 1  # ten steps, and an evaluation of three forward passes
    assert plan.seconds == (sum(map(len, plan.waves)) * each if known else None)
