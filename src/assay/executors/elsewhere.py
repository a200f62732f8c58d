"""Waves that run in processes of their own, which may be on other machines that share the home.

The process of a wave is ``python -m assay.studies.execution.wave STUDY-FOLDER NUMBER``. It writes the news of its wave
to ``waves/NUMBER.jsonl`` in the study's folder. The coordinator reads them and passes them on, so only one process
writes the study's own log. A wave is told to stop by the file ``waves/NUMBER.stop``. A subclass says how a process is
submitted: to Ray, to Slurm, or to this machine.
"""

import sys
import time
from abc import abstractmethod
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from assay.errors import UsageError
from assay.executors.base import Conducted, Ended, Executor, Interrupting, RoundEnded, Started, Wave, Work
from assay.executors.ended import cell_result, without_a_terminal
from assay.executors.news import from_events
from assay.files import storage_errors, write_file
from assay.records.events import OverEvent
from assay.records.study import Cell, StudyEnding
from assay.store.event_log import read_since
from assay.store.processes import is_locked
from assay.store.run_folder import RunFolder

POLL_SECONDS = 0.2
LEASHED = "leashed"
"""Argument of a wave's process that ends when its standard input closes."""
OVER = "over"
"""Last event of a wave's log: its ending, or the reason why it could not begin."""


class WaveFiles(NamedTuple):
    """Files of one wave in the folder of its study."""

    folder: Path
    number: int

    @property
    def cells(self) -> Path:
        """Names of its cells, one on each line."""
        return self.folder / "waves" / f"{self.number:04d}.cells"

    @property
    def log(self) -> Path:
        """News of the wave, as in the study's log."""
        return self.folder / "waves" / f"{self.number:04d}.jsonl"

    @property
    def stop(self) -> Path:
        """Its existence requests that the wave save and end."""
        return self.folder / "waves" / f"{self.number:04d}.stop"

    @property
    def command(self) -> list[str]:
        """Command that runs the wave."""
        return [sys.executable, "-P", "-m", "assay.studies.execution.wave", str(self.folder), str(self.number)]

    @property
    def running(self) -> bool:
        """True if a process on a machine that shares the folder runs the wave."""
        return is_locked(self.log)


def is_installed(package: str) -> bool:
    """True if a package can be imported."""
    try:
        return find_spec(package) is not None
    except ValueError:
        return False


class Submitted(Protocol):
    """Process of a wave that was submitted."""

    def alive(self) -> bool:
        """True while the process waits or runs."""

    def cancel(self) -> None:
        """End the process at once."""


class Elsewhere(Executor):
    """Submits the waves, a few at a time, and passes their news on."""

    @abstractmethod
    def open(self, work: Work) -> int:
        """Prepare for submitting, and return how many waves may run at once."""

    @abstractmethod
    def submit(self, files: WaveFiles, cores: int) -> Submitted:
        """Submit the process of a wave that needs some cores; 0 stands for a whole machine."""

    def close(self) -> None:
        """Give back what `open` took."""

    def run(self, work: Work) -> Conducted:
        """Run every wave. A Ctrl-C lets the living cells save and end, and a second one ends their processes."""
        at_once = self.open(work)
        try:
            return _Submissions(self, work, at_once).run()
        finally:
            self.close()


class _Submissions:
    """The waves in flight."""

    def __init__(self, by: Elsewhere, work: Work, at_once: int) -> None:
        self._by, self._work, self._at_once = by, work, at_once
        self._cores = 0 if work.blocks else 1
        self._flying: dict[int, _Flight] = {}
        self._done = Conducted()
        self._tell = work.tell

    def run(self) -> Conducted:
        waves = iter(self._work.waves)
        try:
            more = True
            while more or self._flying:
                if more and len(self._flying) < self._at_once:
                    more = self._take(waves)
                else:
                    time.sleep(POLL_SECONDS)
                self._look()
        except KeyboardInterrupt:
            self._interrupt()
        except BaseException:
            self._cancel()
            raise
        return self._done

    def _take(self, waves: Iterator[tuple[int, Wave]]) -> bool:
        """Submit the next wave; False if there is none."""
        one = next(waves, None)
        if one is None:
            return False
        number, wave = one
        files = WaveFiles(self._work.folder, number)
        with storage_errors(files.cells):
            files.cells.parent.mkdir(exist_ok=True)
            for old in (files.log, files.stop):
                old.unlink(missing_ok=True)
        write_file(files.cells, "\n".join(cell.name for cell in wave).encode())
        self._flying[number] = _Flight(wave, files, self._by.submit(files, self._cores))
        return True

    def _look(self) -> None:
        """Pass new lines of all waves on, and let go of those that are over."""
        for number, flight in list(self._flying.items()):
            alive = flight.process.alive()
            over = self._relay(flight)
            if over is not None and over.refused is not None:
                raise UsageError(f"wave {number} cannot run: {over.refused}")
            if over is not None or not alive:
                interrupted = over is None or over.ending != StudyEnding.COMPLETE.value
                if interrupted:
                    self._done.ending = StudyEnding.INTERRUPTED
                del self._flying[number]

    def _relay(self, flight: "_Flight") -> OverEvent | None:
        """Pass the new lines of a wave on; return its last event if it is over."""
        events, flight.offset = read_since(flight.files.log, flight.offset)
        work = self._work
        for news in from_events(events, [flight.wave], work.blocks, work.home):
            if isinstance(news, Started):
                flight.start(news.cell, self._done)
            elif isinstance(news, Ended):
                told = RunFolder(work.home.runs / news.result.run).events()
                self._done.cells.append(cell_result(news.cell, news.wave, news.result, told))
            elif isinstance(news, RoundEnded):
                self._done.rounds.append(news.round)
            self._tell(news)
        return next((event for event in events if isinstance(event, OverEvent)), None)

    def _interrupt(self) -> None:
        """Let every wave save and end; at a second Ctrl-C, end their processes."""
        self._tell = without_a_terminal(self._work.tell)
        self._tell(Interrupting())
        self._done.ending = StudyEnding.INTERRUPTED
        try:
            for flight in self._flying.values():
                with storage_errors(flight.files.stop):
                    flight.files.stop.touch()
            while self._flying:
                time.sleep(POLL_SECONDS)
                self._look()
        except KeyboardInterrupt:
            self._cancel()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        for flight in self._flying.values():
            flight.process.cancel()


class _Flight:
    """A wave in flight, and how far its log was read."""

    def __init__(self, wave: Wave, files: WaveFiles, process: Submitted) -> None:
        self.wave, self.files, self.process = wave, files, process
        self.offset = 0
        self._started: set[str] = set()

    def start(self, cell: Cell, done: Conducted) -> None:
        """Note the start of a cell. If it starts again, its job was repeated, and only the new attempt counts."""
        if cell.name in self._started:
            self._started.clear()
            done.cells[:] = [one for one in done.cells if one.wave != self.files.number]
            done.rounds[:] = [one for one in done.rounds if one.wave != self.files.number]
        self._started.add(cell.name)
