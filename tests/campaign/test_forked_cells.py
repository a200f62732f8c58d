"""Kill −9 of a real study of forked cells: of the server, of a cell, of the coordinator. No finished cell is lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from assay.config import Home
from assay.hardware.detect import detect
from assay.hardware.rates import rates_file, with_rates
from assay.records.status import Status
from assay.records.study import ComparisonRecord, StudyEnding
from campaign.killing import GONE_SECONDS, assay
from campaign.studies import recorded
from support.advice import RATES as CPU_RATES
from support.faults import Forked, command, until
from support.forked import fork_children

RATES = tuple(f"{number}e-3" for number in range(2, 5))
STUDY = """
kind: factorial
base: demo
overrides: [data.path={text}, data.tokenizer=byte, model.n_layer=1, model.n_head=1, model.n_embd=8,
  model.context_length=8, training.batch_size=2, training.steps=150, training.check_values=false]
seeds: 1
processes: 1
vary:
  training.learning_rate: [{rates}]
"""
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("forked")
    text, study = place / "text.txt", place / "rates.yaml"
    text.write_text("To be, or not to be, that is the question.\n" * 200)
    study.write_text(STUDY.format(text=text, rates=", ".join(RATES)))
    return str(study)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, file: str) -> dict[str, object]:
    """The contents of the study that nothing happened to."""
    home = tmp_path_factory.mktemp("whole") / "home"
    assert ended(begun(home, file)) == 0
    return contents(recorded(Home(home)))


def contents(record: ComparisonRecord) -> dict[str, object]:
    """Return what a study has of each cell, but for its times."""
    return {
        one.cell.name: (
            one.result.status,
            one.curve.train_loss,
            one.curve.evaluations,
            one.result.memory.tensors_peak_bytes,
        )
        for one in record.cells
    }


def begun(home: Path, file: str) -> Forked:
    """Start the study in a home that knows the rates of this machine, which would take long to measure.

    Its server is forked from it, which has imported everything.
    """
    place = Home(home).ready()
    rates_file(place).write_bytes(with_rates(rates_file(place), detect(), {"cpu": CPU_RATES}, 1))
    return command(home, "study", "run", file, "--loss-only", fault=lambda: fork_children(pytest.MonkeyPatch()))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def under_way(home: Path, file: str) -> Iterator[Forked]:
    """A study with a finished cell and others to come."""
    process = begun(home, file)
    try:
        until(lambda: finished(home) > 0, "no cell was finished", PATIENCE_SECONDS)
        assert process.poll() is None
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def ended(process: Forked) -> int:
    """Exit code of a process that ends soon."""
    until(lambda: process.poll() is not None, "the study has not ended", PATIENCE_SECONDS)
    return process.wait()


def finished(home: Path) -> int:
    return len(list(home.glob("runs/*/result.json")))


def server_of(process: Forked) -> psutil.Process:
    """The fork server of a study; its cells are its own children."""
    (found,) = psutil.Process(process.pid).children()
    return found


def test_a_study_without_its_server_goes_on(home: Path, under_way: Forked, whole: dict[str, object]) -> None:
    server_of(under_way).kill()
    assert ended(under_way) == 0
    record = recorded(Home(home))
    assert record.ending is StudyEnding.COMPLETE
    assert contents(record) == whole
    assert {one.forked for one in record.cells} == {True, False}


def test_a_killed_cell_is_the_only_one_that_is_lost(home: Path, under_way: Forked, whole: dict[str, object]) -> None:
    server = server_of(under_way)
    until(lambda: bool(server.children()), "no cell runs", PATIENCE_SECONDS)
    server.children()[-1].kill()
    ended(under_way)
    cells = recorded(Home(home)).cells
    assert len(cells) == len(whole)
    lost = [one for one in cells if one.result.status is not Status.DONE]
    assert [one.result.status for one in lost] in ([], [Status.KILLED])  # it may have ended before
    resumed = assay(home, "study", "resume", "last", "--mode", "retry-failed")
    resumed.communicate(timeout=PATIENCE_SECONDS)
    assert contents(recorded(Home(home))) == whole


def test_nothing_outlives_a_killed_coordinator_and_no_finished_cell_runs_again(
    home: Path, under_way: Forked, whole: dict[str, object]
) -> None:
    others = psutil.Process(under_way.pid).children(recursive=True)
    os.kill(under_way.pid, signal.SIGKILL)
    under_way.wait()
    _, left = psutil.wait_procs(others, timeout=GONE_SECONDS)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]
    before = {path.parent.name for path in home.glob("runs/*/result.json")}
    resumed = assay(home, "study", "resume", "last")
    resumed.communicate(timeout=PATIENCE_SECONDS)
    assert resumed.returncode == 0
    record = recorded(Home(home))
    assert contents(record) == whole
    assert before <= {one.result.run for one in record.cells}


@pytest.mark.slow
def test_cells_run_again_if_their_text_has_changed(tmp_path: Path, home: Path) -> None:
    text, study = tmp_path / "text.txt", tmp_path / "rates.yaml"
    text.write_text("To be, or not to be, that is the question.\n" * 200)
    study.write_text(STUDY.format(text=text, rates=", ".join(RATES[:2])))
    assert ended(begun(home, str(study))) == 0
    first = {one.cell.name: one.result.run for one in recorded(Home(home)).cells}
    same = assay(home, "study", "resume", "last")
    assert same.wait(PATIENCE_SECONDS) == 0
    assert {one.cell.name: one.result.run for one in recorded(Home(home)).cells} == first
    text.write_text("Whether 'tis nobler in the mind to suffer\n" * 200)
    changed = assay(home, "study", "resume", "last")
    assert changed.wait(PATIENCE_SECONDS) == 0
    second = {one.cell.name: one.result.run for one in recorded(Home(home)).cells}
    assert second.keys() == first.keys()
    assert not set(second.values()) & set(first.values())
