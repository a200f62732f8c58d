"""Memory of the server between requests: entries and results of runs, studies, digested logs. Files stay the truth.

A run that ended is read once, and again when its files change. This matters for a run that died without a result: its
result is composed from its whole log. A living run shows its configuration and prediction only, and its figures come
with the events (`runs/live.py`). So its log is not read for its result. Its present memory is read from outside, by one
reader that all streams of the run share.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from threading import Event
from typing import cast

from starlette.requests import Request

from assay.config.home import Home
from assay.dashboard.runs.live import RunCourse
from assay.dashboard.runs.watching import Watch
from assay.dashboard.stream import Tail, Tails
from assay.dashboard.study_answer import Answers
from assay.dashboard.study_progress import Studies
from assay.errors import UsageError
from assay.hardware.resident import Resident
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.processes import is_here, is_running
from assay.store.result import begun_result, settle
from assay.store.run_folder import RunFolder, RunProcess

_MOST_RESULTS = 32
_Stamp = tuple[tuple[int, int], ...]
"""Size and modification time of each file that a result is read from."""
_MOST_READERS = 64


class Results:
    """Results of the runs that were looked at last. Any thread may use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[_Stamp, RunResult]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: RunFolder) -> RunResult:
        """Return the result of a run, or of a living one its beginning. Raises `UsageError` if it cannot be read."""
        if not has_ended(folder):
            return begun_result(folder.spec())
        stamp = _stamp(folder)
        with self._lock:
            known = self._kept.get(folder.path)
            if known is not None and known[0] == stamp:
                self._kept.move_to_end(folder.path)
                return known[1]
        result = settle(folder, recorded=False)
        if result.status is Status.RUNNING:  # it was resumed since then
            return result
        with self._lock:
            self._kept[folder.path] = (stamp, result)
            self._kept.move_to_end(folder.path)
            while len(self._kept) > _MOST_RESULTS:
                self._kept.popitem(last=False)
        return result


def has_ended(folder: RunFolder) -> bool:
    """True if a run has a result, or no process any more."""
    return folder.stamp() != 0 or not is_running(folder)


def _stamp(folder: RunFolder) -> _Stamp:
    found = []
    for path in (folder.spec_file, folder.events_file, folder.result_file):
        try:
            facts = path.stat()
            found.append((facts.st_size, facts.st_mtime_ns))
        except FileNotFoundError:
            found.append((-1, 0))
    return tuple(found)


class Present:
    """Readers of the runs that were followed last. Any thread may use it."""

    def __init__(self) -> None:
        self._readers: OrderedDict[Path, tuple[RunProcess, Resident]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: RunFolder) -> int | None:
        """Return the resident bytes of a living run's process, at most a second old; None if they cannot be read."""
        try:
            process = folder.process()
        except UsageError:
            return None
        if process is None or not is_here(process):
            return None
        with self._lock:
            known = self._readers.get(folder.path)
            if known is None or known[0] != process:  # a resumed run has a process of its own
                known = self._readers[folder.path] = (process, Resident(process.pid))
            self._readers.move_to_end(folder.path)
            while len(self._readers) > _MOST_READERS:
                self._readers.popitem(last=False)
        return known[1].nbytes


def why_not(folder: RunFolder) -> str:
    """Return why the present memory of a living run is not read; empty if it is."""
    if folder.spec().config.ranks > 1:
        return "Each rank is a process of its own."
    try:
        process = folder.process()
    except UsageError:
        return "The file that names its process cannot be read."
    return "" if process is None or is_here(process) else "Its process is on another machine."


class ServerState:
    """Memory of one server."""

    def __init__(self, home: Home) -> None:
        self.watch = Watch(home)
        self.results = Results()
        self.tails = Tails()
        self.present = Present()
        self.studies = Studies(home)
        self.answers = Answers(home)
        self.ending = Event()
        """Set once the server ends, so that streams end before it."""

    def course(self, folder: RunFolder) -> Tail:
        """Return the tail of a run's log."""
        return self.tails.of(folder.events_file, lambda: RunCourse(folder.spec()))


def state_of(request: Request) -> ServerState:
    """Return the memory of the server that answers a request."""
    return cast(ServerState, request.app.state.memory)
