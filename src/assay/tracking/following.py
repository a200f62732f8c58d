"""Follows runs and studies, and has them copied to trackers: a single run while it trains, a cell when it has ended.

It only listens to events and news, as a terminal's display does. A cell is copied between two turns, while no step is
timed, and the next turn waits for the copy. A tracker that fails is left out from then on, with one sentence. The run
and its record do not depend on it.

A tracker has a process: requests are lines, answers have a limit, and failures are sentences. The process is in a
session of its own, so that a terminal's Ctrl-C does not reach the library. It ends when its standard input closes.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from assay.config.home import Home
from assay.errors import UsageError, among, one_line, short_text
from assay.executors.base import Ended, News, Planned
from assay.platforms import kill_group, own_session
from assay.records.events import BeginEvent, event_of
from assay.store.event_log import Event
from assay.tracking import TRACKERS, tracker

_SENDER = (sys.executable, "-P", "-m", "assay.tracking.sender")
_END_SECONDS = 30.0
"""Time in which the process must end once its input has closed."""
_Result = TypeVar("_Result")
_READY_SECONDS, _COPY_SECONDS = 60.0, 120.0
"""Time for the import of a library, and for the copy of one run, while a study waits."""


class Failed(Exception):
    """A tracker could not copy a run. The message is the reason."""


class TrackerProcess:
    """The process that copies runs to one tracker, started when it is first needed."""

    def __init__(self, name: str, folder: Path, home: Home) -> None:
        self.name, self.folder = name, folder
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._words: IO[bytes] | None = None

    def look(self, runs: list[str]) -> str:
        """Return the command that shows the copies of these runs."""
        return tracker(self.name, self.folder).look(runs)

    def start(self) -> bool:
        """Start the process, and return True; False if it runs already. Raises `Failed`."""
        if self._process is not None:
            return False
        try:
            self._words = tempfile.TemporaryFile()  # noqa: SIM115 closed with the process
            self._process = subprocess.Popen(
                [*_SENDER, self.name, str(self.folder), str(self._home.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env=_surroundings(self.name, self.folder),
                **own_session(),
            )
        except OSError as error:
            raise Failed(f"its process could not be started: {error.strerror or error}") from error
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        return True

    def request(self, do: str, **facts: str) -> None:
        """Write one request. Raises `Failed` if the process has ended."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **facts}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.answer("sent", _END_SECONDS)  # the process has ended, and perhaps has said why

    def answer(self, kind: str, seconds: float) -> None:
        """Wait for an answer of this kind. Raises `Failed` if there is none within some seconds, or for a failure."""
        while True:
            try:
                said = self._answers.get(timeout=seconds)
            except queue.Empty:
                raise Failed(f"no answer within {seconds:g} s") from None
            if said is None:
                raise Failed(self._ended())
            if "failed" in said:
                raise Failed(said["failed"])
            if kind in said:
                return

    def close(self, seconds: float = _END_SECONDS) -> None:
        """Let the process end, and kill it with all that its library started after some seconds."""
        if self._process is None:
            return
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._words is not None:
            self._words.close()

    def kill(self) -> None:
        """Kill the process with all that its library started, unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            kill_group(self._process.pid)
            self._process.wait()

    def _listen(self, answers: IO[bytes]) -> None:
        with answers:
            for line in answers:
                with suppress(ValueError):
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def _ended(self) -> str:
        """Return how the process ended, with the last line that it printed."""
        assert self._process is not None
        assert self._words is not None
        code = self._process.wait(timeout=_END_SECONDS)
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with exit code {code}" + (f": {lines[-1].strip()}" if lines else "")


def _surroundings(name: str, folder: Path) -> dict[str, str]:
    """Return the environment of the process: the tracker's own variables, and none that a user set for the library."""
    prefix = TRACKERS[name].prefix
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(prefix)}
    return {**inherited, **tracker(name, folder).surroundings()}


def print_note(sentence: str) -> None:
    """Print a sentence on standard error."""
    print(sentence, file=sys.stderr, flush=True)


class Tracking:
    """Listener that has runs copied to trackers. Used as a context manager, it leaves no process running."""

    def __init__(
        self,
        names: Sequence[str],
        home: Home,
        tell: Callable[[str], None] = print_note,
        folder: Path | None = None,
    ) -> None:
        self.runs: list[str] = []
        """Runs that were copied."""
        self.failures: dict[str, str] = {}
        """Reason of each tracker that has failed."""
        self._tell = tell
        self._processes = {
            name: TrackerProcess(name, folder or home.tracked / name, home) for name in check_names(names)
        }
        self._followed: str | None = None
        self._study = ""

    @property
    def looks(self) -> list[str]:
        """Commands that show the copies; none for a tracker that has failed, or without a copy."""
        return [process.look(self.runs) for process in self._processes.values()] if self.runs else []

    def event(self, event: Event) -> None:
        """Receive an event of `assay.train`: when the run has begun, it is followed."""
        begun = event_of(event)
        if isinstance(begun, BeginEvent):
            self._finish()
            self._followed = begun.run
            self._each(self._followed, lambda process: process.request("follow", run=begun.run))

    def after(self, listener: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a listener of events that passes each to `listener` first."""

        def tell(event: Event) -> None:
            listener(event)
            self.event(event)

        return tell

    def news(self, news: News) -> None:
        """Receive the news of a study: libraries are imported before it begins, and every ended cell is copied."""
        if isinstance(news, Planned):
            self._study = news.study
            self._each("", _begin)
        elif isinstance(news, Ended):
            self.send(news.result.run, news.cell.name, self._study)

    def beside(self, measure: Callable[..., _Result]) -> Callable[..., _Result]:
        """Return a function such as `assay.compare` that also passes its news to this."""

        def measured(*, on_news: Callable[[News], None] | None = None, **given: Any) -> _Result:
            def tell(news: News) -> None:
                if on_news is not None:
                    on_news(news)
                self.news(news)

            return measure(on_news=tell, **given)

        return measured

    def send(self, run: str, title: str = "", group: str = "", seconds: float = _COPY_SECONDS) -> None:
        """Copy a run as it is now, and wait for it."""

        def copied(process: TrackerProcess) -> None:
            process.request("send", run=run, title=title, group=group)
            process.answer("sent", seconds)

        self._each(run, copied)
        self._note(run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._finish()
            for process in self._processes.values():
                process.close()
        finally:
            for process in self._processes.values():
                process.kill()

    def _finish(self) -> None:
        """End the copy of the followed run."""
        run, self._followed = self._followed, None
        if run is not None:

            def ended(process: TrackerProcess) -> None:
                process.request("finish", run=run)
                process.answer("sent", _COPY_SECONDS)

            self._each(run, ended)
            self._note(run)

    def _note(self, run: str) -> None:
        if self._processes and run not in self.runs:
            self.runs.append(run)

    def _each(self, run: str, act: Callable[[TrackerProcess], None]) -> None:
        """Do something with each tracker. One that fails is left out, with a sentence."""
        for name, process in list(self._processes.items()):
            try:
                act(process)
            except Failed as failure:
                process.kill()
                process.close()
                del self._processes[name]
                self.failures[name] = one_line(str(failure))
                with suppress(OSError):  # nothing can be shown on a closed terminal
                    self._tell(_sentence(name, self._study or run, self.failures[name]))


def _begin(process: TrackerProcess) -> None:
    """Start a process, and wait until it has imported its library."""
    if process.start():
        process.answer("ready", _READY_SECONDS)


def _sentence(name: str, record: str, reason: str) -> str:
    """Return the sentence on a tracker that has failed."""
    later = f"`assay runs track {record} --to {name}` copies it later"
    return f"assay: {name} gets no more copies ({reason}); the records are complete, and {later}"


def check_names(names: Sequence[str]) -> list[str]:
    """Return the names, each once. Raises `UsageError` for another name, and if a library is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"there is no tracker {short_text(name)}{among(name, TRACKERS)}")
        if not _installed(name):
            raise UsageError(f"the tracker {name} needs the package {name}; install with `pip install 'assay[{name}]'`")
    return list(dict.fromkeys(names))


def _installed(library: str) -> bool:
    """True if a library can be imported; a folder of its name in the working directory is none."""
    found = find_spec(library)
    return found is not None and found.origin is not None
