"""Resident memory of another process, read from outside and at most once a second, so that it disturbs no step."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_SECONDS = 1.0
"""Least time between two readings."""


class Resident:
    """A process of this host and its resident memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process: psutil.Process | None = None
        """Kept, because to find a process takes longer than to read its memory."""
        self._read = -_SECONDS
        self._known: int | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of resident pages without those of files where the system counts them; None once it has ended."""
        now = time.monotonic()
        if now - self._read >= _SECONDS:
            self._read, self._known = now, self._measured()
        return self._known

    def _measured(self) -> int | None:
        import psutil

        try:
            if self._process is None:
                self._process = psutil.Process(self._pid)
            found = self._process.memory_info()
        except psutil.Error:
            return None
        return int(found.rss - getattr(found, "shared", 0))
