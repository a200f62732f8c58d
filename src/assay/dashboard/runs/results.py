"""Results of runs for their pages. A run that ended is read once, and again when its files change.

This matters for a run that died without a result: its result is composed from its whole log. A living run shows its
configuration and prediction only, and its figures come with the events (`live`). So its log is not read here.
"""

import threading
from collections import OrderedDict
from pathlib import Path

from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.processes import is_running
from assay.store.result import begun_result, settle
from assay.store.run_folder import RunFolder

_MOST_RESULTS = 32

_Stamp = tuple[tuple[int, int], ...]
"""Size and modification time of each file that a result is read from."""


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
