"""Cells without a process: each has the folder of a finished run when its turns are over. Thousands fit into a test."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar

import pytest

from assay.config import Home
from assay.executors.base import Conducted, Executor, News, Work
from assay.executors.elsewhere import OVER, WaveFiles
from assay.executors.local import Local
from assay.executors.news import to_event
from assay.launch.prepare import ReadyRun
from assay.records.events import GO, LogEvent, PhaseEvent
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.event_log import append
from assay.store.result import RunFigures, result_of
from assay.store.run_folder import RunFolder, RunSpec, new_id
from assay.studies.execution import ready as preparing
from support.fake_child import NO_PROCESS
from support.fake_executor import known_as_here
from support.fake_studies import fake_cells


class Instant(AbstractContextManager["Instant"]):
    """Speaks as `assay.launch.child.Child` does."""

    finished, upcoming, pid = False, "repeat", NO_PROCESS

    def __init__(self, ready: ReadyRun, home: Home, **options: Any) -> None:
        self.folder = RunFolder(home.runs / new_id(ready.identity))
        self._spec = RunSpec(
            id=self.folder.id, created="2026-01-01", identity=ready.identity, config=ready.run, data_folder=""
        )
        self.folder.prepare(self._spec)

    def turn(self, word: str = GO) -> Iterator[LogEvent]:
        yield PhaseEvent(event="phase", name="steady")

    def events(self) -> Iterator[LogEvent]:
        yield from self.turn()

    def interrupt(self) -> None: ...
    def kill(self) -> None: ...

    def result(self) -> RunResult:
        append(self.folder.events_file, {"event": "step", "step": 0, "loss": 3.0, "seconds": 0.1, "tokens": 8})
        done = result_of(self._spec, Status.DONE, None, RunFigures.of_events(self.folder.events()))
        self.folder.write_result(done)
        return done

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class WithWaveLogs(Executor):
    """Runs waves in this process, and leaves the logs that processes of waves leave."""

    name: ClassVar[str] = "here"

    def run(self, work: Work) -> Conducted:
        done = Conducted()
        for number, wave in work.waves:
            log = WaveFiles(work.folder, number).log
            log.parent.mkdir(exist_ok=True)
            log.unlink(missing_ok=True)

            def tell(news: News, log: Any = log) -> None:
                event = to_event(news)
                if event is not None:
                    append(log, event)
                work.tell(news)

            ran = Local().run(replace(work, waves=[(number, wave)], tell=tell))
            append(log, {"event": OVER, "ending": ran.ending.value})
            done.cells.extend(ran.cells)
            done.rounds.extend(ran.rounds)
        return done


def instant_cells(monkeypatch: pytest.MonkeyPatch, here: type[Executor] = WithWaveLogs) -> None:
    """Let all cells be of this kind, and the executor `here` one that runs waves in this process."""
    fake_cells(monkeypatch)
    monkeypatch.setattr(preparing, "start", Instant)
    known_as_here(monkeypatch, here)
