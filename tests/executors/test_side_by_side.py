"""Cells beside each other: as many at once as there are slots, each to its end."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pytest

from assay.config import Home, load
from assay.errors import StorageError
from assay.executors.base import Ended, Interrupting, News, Started, Stepped, Work
from assay.executors.local import Local
from assay.executors.side_by_side import _Living
from assay.records.events import LogEvent, event_of
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import Cell, StudyEnding
from support.designs import design
from support.fake_child import NO_PROCESS, FakeFolder
from support.faults import until

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=2)


class Stage:
    """Children that are alive, and how many were at most."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.most = 0
        self.release = threading.Event()
        self.lock = threading.Lock()

    def start(self, cell: Cell) -> "Child":
        return Child(self, cell)


class Child(AbstractContextManager["Child"]):
    """A child without turns. It ends when another has begun, or when it is interrupted."""

    finished, upcoming, pid = False, None, NO_PROCESS
    folder = FakeFolder()

    def __init__(self, stage: Stage, cell: Cell) -> None:
        self.stage, self.cell, self.status = stage, cell, Status.DONE
        with stage.lock:
            stage.alive.add(cell.name)
            stage.most = max(stage.most, len(stage.alive))

    def events(self) -> Iterator[LogEvent]:
        yield event_of({"event": "phase", "name": "steady"})
        yield event_of({"event": "step", "step": 0, "loss": 2.5, "seconds": 0.1, "tokens": 8})
        self.stage.release.wait(0.02)

    def turn(self, word: str = "") -> Iterator[LogEvent]:
        raise AssertionError("a cell that is not timed takes no turns")

    def interrupt(self) -> None:
        self.status = Status.INTERRUPTED

    def kill(self) -> None:
        self.status = Status.KILLED

    def result(self) -> RunResult:
        created = "2026-11-21T08:00:00+00:00"
        return RunResult(
            run=self.cell.name,
            status=self.status,
            reason=None,
            created=created,
            identity="0" * 12,
            config=self.cell.run,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.stage.lock:
            self.stage.alive.discard(self.cell.name)


def work(stage: Stage, slots: int, heard: list[News]) -> Work:
    waves = [(number, (cell,)) for number, cell in enumerate(CELLS)]
    return Work(waves, stage.start, 0, heard.append, Home("nowhere"), Path("nowhere"), slots)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_every_cell_runs_once_and_no_more_than_the_slots_at_a_time(slots: int) -> None:
    stage, heard = Stage(), list[News]()
    done = Local().run(work(stage, slots, heard))
    assert sorted(one.cell.name for one in done.cells) == sorted(cell.name for cell in CELLS)
    assert stage.most == slots
    assert not stage.alive
    assert done.ending is StudyEnding.COMPLETE
    assert [len([one for one in heard if isinstance(one, kind)]) for kind in (Started, Stepped, Ended)] == [
        len(CELLS)
    ] * 3
    assert {one.cell.name: one.wave for one in done.cells} == {cell.name: at for at, cell in enumerate(CELLS)}


def test_the_cells_of_a_wave_follow_one_another_beside_other_waves() -> None:
    stage, heard = Stage(), list[News]()
    asked = replace(work(stage, 3, heard), waves=[(0, CELLS[:4]), (1, CELLS[4:6])])
    done = Local().run(asked)
    assert stage.most == 2, "one of each wave"
    named = {cell.name: at for at, cell in enumerate(CELLS)}
    starts = [named[one.cell.name] for one in heard if isinstance(one, Started)]
    assert [one for one in starts if one < 4] == [0, 1, 2, 3]
    assert {one.cell.name: one.wave for one in done.cells} == {cell.name: named[cell.name] // 4 for cell in CELLS[:6]}


def test_an_interrupt_starts_no_further_cell_of_a_wave() -> None:
    stage = Stage()

    def interrupting() -> Iterator[tuple[int, tuple[Cell, ...]]]:
        yield 0, CELLS[:4]
        until(lambda: bool(stage.alive), "it lives", 10.0)
        raise KeyboardInterrupt

    done = Local().run(replace(work(stage, 2, []), waves=interrupting()))
    assert done.ending is StudyEnding.INTERRUPTED
    assert len(done.cells) < 4


def test_an_error_of_one_cell_ends_all() -> None:
    stage = Stage()

    def fail(cell: Cell) -> Child:
        if cell is CELLS[2]:
            raise RuntimeError("the disk is full")
        return Child(stage, cell)

    heard: list[News] = []
    asked = work(stage, 2, heard)
    with pytest.raises(RuntimeError, match="disk"):
        Local().run(Work(asked.waves, fail, 0, asked.tell, asked.home, asked.folder, 2))
    assert not stage.alive


@pytest.mark.parametrize("kind", [Started, Ended])
def test_a_log_that_cannot_be_written_ends_all(kind: type[News]) -> None:
    stage = Stage()

    def full(news: News) -> None:
        if isinstance(news, kind):
            raise StorageError("the log could not be written")

    asked = work(stage, 2, [])
    with pytest.raises(StorageError, match="the log could not be written"):
        Local().run(replace(asked, tell=full))
    assert not stage.alive


def test_an_interrupt_lets_the_living_cells_end_and_starts_no_other() -> None:
    stage = Stage()
    stage.release = threading.Event()
    waves = [(number, (cell,)) for number, cell in enumerate(CELLS)]

    def until_two_live() -> Iterator[tuple[int, tuple[Cell, ...]]]:
        for number, wave in waves:
            if number == 2:
                time.sleep(0.005)
                raise KeyboardInterrupt
            yield number, wave

    done = Local().run(Work(until_two_live(), stage.start, 0, lambda news: None, Home("n"), Path("n"), 3))
    assert done.ending is StudyEnding.INTERRUPTED
    assert {one.cell.name for one in done.cells} == {cell.name for cell in CELLS[:2]}
    assert not stage.alive


@pytest.mark.parametrize("kill", [False, True])
def test_a_stop_does_not_wait_for_a_cell_that_is_starting(kill: bool) -> None:
    """The first cell may wait for an import of torch; it is stopped once it is there, and no other one starts."""
    stage, heard = Stage(), list[News]()
    begun, go_on = threading.Event(), threading.Event()

    def slow(cell: Cell) -> Child:
        begun.set()
        go_on.wait(10.0)
        return Child(stage, cell)

    living = _Living(replace(work(stage, 2, heard), start=slow))
    threads = [threading.Thread(target=living.run, args=(cell, 0)) for cell in CELLS[:2]]
    for one in threads:
        one.start()
    assert begun.wait(10.0)
    stopping = threading.Thread(target=living.kill if kill else living.interrupt)
    stopping.start()
    until(lambda: living._stopping and (kill or any(isinstance(one, Interrupting) for one in heard)), "it waits", 10.0)
    go_on.set()
    for one in (*threads, stopping):
        one.join(10.0)
        assert not one.is_alive()
    status = Status.KILLED if kill else Status.INTERRUPTED
    assert [one.result.status for one in living.done.cells] == [status]
