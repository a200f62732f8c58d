"""Waves in processes of their own: the same record as here, whatever dies or is interrupted."""

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from assay import executors
from assay.config import Home
from assay.errors import UsageError
from assay.executors.base import Ended, News, Started, Work
from assay.executors.elsewhere import LEASHED, Elsewhere, WaveFiles
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.studies.execution import run as module
from assay.studies.execution.modes import Mode
from assay.studies.folder import find
from support import fake_wave
from support.fake_studies import CELLS, fake_cells, run, shape, silent


class Process:
    """A process that was submitted."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def alive(self) -> bool:
        return self.process.poll() is None

    def cancel(self) -> None:
        self.process.kill()


class Here(Elsewhere):
    """Submits waves to this machine, two at once."""

    name: ClassVar[str] = "here"
    submitted: ClassVar[list[Process]] = []

    def open(self, work: Work) -> int:
        return 2

    def submit(self, files: WaveFiles, cores: int) -> Process:
        self.submitted.append(Process([sys.executable, fake_wave.__file__, *files.command[-2:], LEASHED]))
        return self.submitted[-1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    fake_cells(monkeypatch)
    monkeypatch.setattr(executors, "extension_folder", lambda kind: None)
    monkeypatch.setattr(executors, "Ray", Here)
    monkeypatch.setattr(Here, "submitted", [])
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


def test_a_wave_whose_process_is_killed_is_left_for_resume(home: Home) -> None:
    heard: list[News] = []

    class Killing(list[News]):
        def append(self, news: News) -> None:
            heard.append(news)
            if isinstance(news, Started) and len(Here.submitted) == 2:
                Here.submitted[0].cancel()

    record = run(home, "here", heard=Killing())
    assert record.ending is StudyEnding.INTERRUPTED
    resumed = module.resumed(find(home, "last"), module.How(home, 1, None, "", silent, lambda news: None))
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


def test_what_a_lost_coordinator_did_not_copy_is_gathered(home: Home) -> None:
    run(home, "here")
    folder = find(home, "last")
    lines = folder.events_file.read_bytes().splitlines(keepends=True)
    folder.events_file.write_bytes(lines[0])  # the plan alone
    folder.record_file.unlink()
    heard: list[News] = []
    how = module.How(home, 1, None, "", silent, heard.append)
    record = module.resumed(folder, how)
    assert len(record.cells) == len(CELLS)
    assert not [one for one in heard if isinstance(one, Started)], "nothing ran again"
    again = module.resumed(folder, how, Mode.FORCE)
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
    how = module.How(home, 1, None, "", silent, lambda news: None)
    for _ in range(2):
        record = module.resumed(folder, how)
        assert sorted((one.wave, one.number) for one in record.rounds) == rounds
    forced = module.resumed(folder, how, Mode.FORCE)
    again = module.resumed(folder, how)
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
            module.resumed(folder, module.How(home, 1, None, "", silent, lambda news: None))
