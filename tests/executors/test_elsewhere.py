"""Waves in processes of their own: the same record as here, whatever dies or is interrupted."""

import errno
import signal
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from assay.config import Home
from assay.errors import StorageError, UsageError
from assay.executors.base import Ended, News, Started, Work
from assay.executors.elsewhere import OVER, Elsewhere, WaveFiles
from assay.executors.local import Local
from assay.executors.news import to_event
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.store.event_log import append
from assay.studies.execution import run as module
from assay.studies.execution.fold import Mode
from assay.studies.folder import StudyFolder, find
from support.fake_executor import Here, known_as_here
from support.fake_studies import BASE, CELLS, fake_cells, run, shape, silent
from support.instant_cells import instant_cells


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    fake_cells(monkeypatch)
    known_as_here(monkeypatch)
    return Home(tmp_path)


@pytest.mark.parametrize("timed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_record_is_that_of_this_machine(home: Home, timed: bool) -> None:
    heard: list[News] = []
    there = run(home, "here", heard=heard, timed=timed)
    assert shape(there) == shape(run(home, "local", timed=timed))
    assert there.ending is StudyEnding.COMPLETE
    assert {one.cell.name for one in heard if isinstance(one, Ended)} == {cell.name for cell in CELLS}
    for one in Here.submitted:
        assert one.process.wait(20) == 0


def test_a_wave_whose_process_is_killed_is_left_for_resume(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[News] = []

    class Killing(list[News]):
        def append(self, news: News) -> None:
            heard.append(news)
            if isinstance(news, Started) and len(Here.submitted) == 2:
                Here.submitted[0].cancel()

    monkeypatch.setenv("FAKE", "slow")  # or the first wave may have ended before the second has started
    record = run(home, "here", heard=Killing())
    assert record.ending is StudyEnding.INTERRUPTED
    monkeypatch.delenv("FAKE")
    resumed = module.resume_study(find(home, "last"), module.Execution(home, 1, None, "", silent, lambda news: None))
    assert resumed.ending is StudyEnding.COMPLETE
    assert sorted(one.cell.name for one in resumed.cells) == sorted(cell.name for cell in CELLS)
    alive = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in alive if "fake_worker" in " ".join(one.cmdline())]


def test_an_interrupt_lets_the_waves_save(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(list[News]):
        interrupted = False

        def append(self, news: News) -> None:
            if isinstance(news, Started) and not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt

    monkeypatch.setenv("FAKE", "slow")
    record = run(home, "here", heard=Interrupting())
    assert record.ending is StudyEnding.INTERRUPTED
    for one in Here.submitted:
        assert one.process.wait(20) == 0
    assert {one.result.status for one in record.cells} <= {Status.INTERRUPTED, Status.DONE}


def test_a_full_disk_at_an_interrupt_ends_the_waves(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupt(news: News) -> None:
        if isinstance(news, Started):
            raise KeyboardInterrupt

    monkeypatch.setenv("FAKE", "slow")
    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(StorageError, match="No space left"):
        module.measure_design(CELLS, BASE, module.Execution(home, 2, None, "test", silent, interrupt, "here"))
    assert {one.process.wait(20) for one in Here.submitted} == {-signal.SIGKILL}


class Requeued(Elsewhere):
    """A scheduler that repeats each wave: the node of the first attempt is lost after the end of its first cell."""

    name: ClassVar[str] = "here"

    def open(self, work: Work) -> int:
        self.work = work
        return 1

    def submit(self, files: WaveFiles, cores: int) -> "Requeued":
        plan, names = StudyFolder(files.folder).plan(), files.cells.read_text().splitlines()
        assert plan is not None
        waves = [(files.number, tuple(cell for cell in plan.cells if cell.name in names))]
        for attempt in range(2):
            heard: list[News] = []
            Local().run(replace(self.work, waves=waves, tell=heard.append))
            ends = [place for place, news in enumerate(heard) if isinstance(news, Ended)]
            told = heard if attempt else heard[: ends[0] + 1]
            for event in filter(None, map(to_event, told)):
                append(files.log, event)
        append(files.log, {"event": OVER, "ending": "complete"})
        return self

    def alive(self) -> bool:
        return False

    def cancel(self) -> None: ...


def test_a_job_that_is_repeated_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_cells(monkeypatch, Requeued)
    record = run(Home(tmp_path), "here")
    assert sorted(one.cell.name for one in record.cells) == sorted(cell.name for cell in CELLS)
    assert sorted((one.wave, one.number) for one in record.rounds) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    how = module.Execution(Home(tmp_path), 1, None, "", silent, lambda news: None)
    again = module.resume_study(find(how.home, "last"), how)
    assert {one.result.run for one in again.cells} == {one.result.run for one in record.cells}


def test_results_that_a_lost_coordinator_did_not_copy_are_gathered(home: Home) -> None:
    run(home, "here")
    folder = find(home, "last")
    lines = folder.events_file.read_bytes().splitlines(keepends=True)
    folder.events_file.write_bytes(lines[0])  # the plan alone
    folder.record_file.unlink()
    heard: list[News] = []
    how = module.Execution(home, 1, None, "", silent, heard.append)
    record = module.resume_study(folder, how)
    assert len(record.cells) == len(CELLS)
    assert not [one for one in heard if isinstance(one, Started)], "nothing ran again"
    again = module.resume_study(folder, how, Mode.FORCE)
    assert len(again.cells) == len(CELLS)
    assert len({one.result.run for one in (*record.cells, *again.cells)}) == 2 * len(CELLS)


@pytest.mark.parametrize("lines", [pytest.param(4, marks=pytest.mark.slow), 12])
def test_rounds_are_gathered_once_each(home: Home, lines: int) -> None:
    rounds = sorted((one.wave, one.number) for one in run(home, "here").rounds)
    folder = find(home, "last")
    kept = folder.events_file.read_bytes().splitlines(keepends=True)[:lines]
    folder.events_file.write_bytes(b"".join(kept))
    folder.record_file.unlink()
    (folder.path / "waves" / "foo.jsonl").write_text("")
    how = module.Execution(home, 1, None, "", silent, lambda news: None)
    for _ in range(2):
        record = module.resume_study(folder, how)
        assert sorted((one.wave, one.number) for one in record.rounds) == rounds
    forced = module.resume_study(folder, how, Mode.FORCE)
    again = module.resume_study(folder, how)
    assert sorted((one.wave, one.number) for one in again.rounds) == sorted(
        (one.wave, one.number) for one in forced.rounds
    )


def test_a_wave_that_still_runs_keeps_a_study_from_being_resumed(home: Home) -> None:
    import fcntl

    run(home, "here")
    folder = find(home, "last")
    with WaveFiles(folder.path, 0).log.open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="still runs"):
            module.resume_study(folder, module.Execution(home, 1, None, "", silent, lambda news: None))
