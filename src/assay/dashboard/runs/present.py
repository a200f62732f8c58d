"""Present memory of living runs, read from outside: one reader for each run, which all streams of it share."""

import threading
from collections import OrderedDict
from pathlib import Path

from assay.errors import UsageError
from assay.hardware.resident import Resident
from assay.store.processes import is_here
from assay.store.run_folder import RunFolder, RunProcess

_MOST_READERS = 64


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
