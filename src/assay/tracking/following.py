"""Follows runs and studies, and has them copied to trackers: a single run while it trains, a cell when it has ended.

It only listens to events and news, as a terminal's display does. A cell is copied between two turns, while no step is
timed, and the next turn waits for the copy. A tracker that fails is left out from then on, with one sentence. The run
and its record do not depend on it.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from assay.config.home import Home
from assay.errors import UsageError, among, one_line, short_text
from assay.executors.base import Ended, News, Planned
from assay.records.events import BeginEvent, event_of
from assay.store.event_log import Event
from assay.tracking import TRACKERS
from assay.tracking.process import Failed, TrackerProcess

_Result = TypeVar("_Result")

_READY_SECONDS, _COPY_SECONDS = 60.0, 120.0
"""Time for the import of a library, and for the copy of one run, while a study waits."""


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
