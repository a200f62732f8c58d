"""A full disk, a second coordinator, and a clock that jumps: what a study says, and that its cells stay exact."""

import itertools
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay import api
from assay.config import Home
from assay.errors import UsageError
from assay.executors.base import Ended, News, Started
from assay.launch import spawn
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.store import run_folder
from assay.store.result import settle
from assay.store.run_folder import RunFolder
from assay.studies import folder as study_folder
from assay.studies.execution import run as module
from assay.studies.execution.study_listing import list_study, study_state
from assay.studies.folder import find, folders
from campaign.studies import contents, is_exact, recorded, repaired, resumed, run, undisturbed
from support import fake_studies
from support.fake_executor import known_as_here
from support.fake_studies import BASE, CELLS, fake_cells, silent
from support.faults import arm, command, full, quiet, until

MOST = 400
"""More changes of the disk than any of these studies makes."""


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cells(monkeypatch)
    known_as_here(monkeypatch)
    monkeypatch.setenv("FAKE", "rates")


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("timed", (1, 45, 96)),
        ("losses", (75,)),
        ("here", (29,)),
        *(pytest.param(kind, range(MOST), marks=pytest.mark.slow) for kind in ("timed", "losses", "halving", "here")),
    ],
)
def test_a_full_disk_is_one_sentence_and_a_resume_repairs_the_study(
    tmp_path: Path, kind: str, numbers: Iterable[int]
) -> None:
    whole = undisturbed(Home(tmp_path / "whole"), kind)
    for number in numbers:
        home = Home(tmp_path / f"full-at-{number}-")
        process = run(home, kind, lambda home=home, number=number: arm(home.root, number, full, lasting=True))
        code = process.wait()
        if code == 0:
            break
        assert code in (1, 2), process.output.read_text()  # 2: the home cannot be made
        assert "No space left" in said(process.output) or "disk is full" in said(process.output)
        repaired(home, whole)
    else:
        assert numbers != range(MOST), "not every change was tried"


def said(output: Path) -> str:
    """The one sentence of an error, which is the last line that a command printed."""
    *before, last = output.read_text().splitlines()
    assert last.startswith("assay: "), output.read_text()
    assert not [line for line in before if line.startswith(("assay: ", "Traceback"))], output.read_text()
    return last.removeprefix("assay: ")


def test_a_second_coordinator_is_refused_while_the_first_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = undisturbed(Home(tmp_path / "whole"), "long")
    monkeypatch.setenv("FAKE", "rates slow")
    home = Home(tmp_path / "one-")
    first = run(home, "long")
    until(lambda: any(event.event == "cell_start" for one in folders(home) for event in one.events()), "no cell")
    folder = find(home, "last")
    with pytest.raises(UsageError, match=f"another process is running the study {folder.id}; wait for it, or stop it"):
        resumed(home)
    second = command(home.root, "study", "resume", "last")
    assert second.wait() == 2
    assert "another process is running" in said(second.output)
    state = api.study.status("last", home)
    assert (state.study.status, state.process.partition(" ")[0]) == ("running", str(first.pid))
    stop = command(home.root, "study", "stop", "last")
    until(lambda: not folder.running, "it goes on")
    assert first.wait() == 130
    assert stop.wait() == 0, stop.output.read_text()
    assert recorded(home).ending is StudyEnding.INTERRUPTED
    starts = [event.cell for event in folder.events() if event.event == "cell_start"]
    assert len(starts) == len(set(starts))
    again = command(home.root, "study", "stop", "last")
    assert again.wait() == 2
    assert "no process runs the study" in said(again.output)
    monkeypatch.setenv("FAKE", "rates")
    is_exact(resumed(home), whole)


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock is hours ahead or behind, another number of them at each look."""
    hours = itertools.cycle([0, 5, -7, 30, -2])
    now, born = time.time, psutil.Process.create_time

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(hours=next(hours))

    monkeypatch.setattr(time, "time", lambda: now() + 3600 * next(hours))
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: born(process) + 3600 * next(hours))
    for one in (module, run_folder, spawn, study_folder):
        monkeypatch.setattr(one, "datetime", Jumping)
    assert abs(Jumping.now(UTC) - Jumping.now(UTC)) > timedelta(hours=1)


@pytest.mark.parametrize(
    ("executor", "timed"),
    [
        ("local", True),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("local", False), ("here", True), ("here", False))),
    ],
)
def test_a_clock_that_jumps_changes_neither_cells_nor_liveness(
    tmp_path: Path, request: pytest.FixtureRequest, executor: str, timed: bool
) -> None:
    whole = contents(fake_studies.run(Home(tmp_path / "whole"), "local", timed=timed))
    request.getfixturevalue("jumping")
    home, alive, stopped = Home(tmp_path / "jumps"), set[str](), list[News]()

    def look(news: News) -> None:
        if isinstance(news, Ended):
            alive.discard(news.result.run)
        elif isinstance(news, Started):
            alive.add(news.run)
        folder = find(home, "last")
        assert list_study(folder, home).status == "running"
        assert study_state(folder, home).process
        if executor == "local" and timed and not stopped:  # others may end while this looks
            assert {settle(RunFolder(home.runs / one)).status for one in alive} <= {Status.RUNNING}
        if isinstance(news, Ended) and not stopped:
            stopped.append(news)
            raise KeyboardInterrupt

    how = module.Execution(home, 2, None, "test", silent, look, executor, timed=timed, hours=1.0)
    assert module.measure_design(CELLS, BASE, how).ending is StudyEnding.INTERRUPTED
    record = module.resume_study(find(home, "last"), how)
    assert record.ending is StudyEnding.COMPLETE
    assert {one.result.status for one in record.cells} == {Status.DONE}
    assert contents(record) == whole
    assert len(record.cells) == len(CELLS)
    quiet(home.root)
