"""Following a growing log for many readers: its lines are read and parsed once, and each reader begins at an offset.

A log is read in pieces of at most a mebibyte. The meaning of a piece is kept as a batch with the offset at its end. A
reader that knows everything up to an offset receives the batches that end after it. So nothing is lost if it returns
later, or to a server that was started anew.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.records.events import LogEvent
from assay.store.event_log import read_since

_PIECE_BYTES = 1 << 20
_MOST_LOGS = 32

Batch = dict[str, Any]
Digest = Callable[[Sequence[LogEvent]], Sequence[Batch]]
"""Returns the meaning of a piece of a log, in order. It may keep a state, because pieces arrive in order."""


class Tail:
    """One growing log, digested. Any thread may use it."""

    def __init__(self, path: Path, digest: Digest) -> None:
        self._path = path
        self._digest = digest
        self._offset = 0
        self._batches: list[tuple[int, Batch]] = []
        self._lock = threading.Lock()

    def since(self, offset: int) -> tuple[list[Batch], int]:
        """Return the batches after an offset, and the offset from which to go on; reads what is new in the log."""
        with self._lock:
            while self._read():
                pass
            return [batch for end, batch in self._batches if end > offset], self._offset

    def _read(self) -> bool:
        """Read one piece; true if there was any."""
        events, end = read_since(self._path, self._offset, _PIECE_BYTES)
        if end == self._offset:
            return False
        self._batches += [(end, batch) for batch in self._digest(events)]
        self._offset = end
        return True


class Tails:
    """The tails of runs, by path, which are large; the one that was used least recently is forgotten."""

    def __init__(self) -> None:
        self._tails: OrderedDict[Path, Tail] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path, digest: Callable[[], Digest]) -> Tail:
        """Return the tail of a log; `digest` makes the digest of a new one."""
        with self._lock:
            if path not in self._tails:
                self._tails[path] = Tail(path, digest())
            self._tails.move_to_end(path)
            while len(self._tails) > _MOST_LOGS:
                self._tails.popitem(last=False)
            return self._tails[path]
