"""Resident memory of another process, read from outside and at most once a second, so that it disturbs no step."""

import time

_SECONDS = 1.0
"""Least time between two readings."""


class Resident:
    """A process of this host and its resident memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._read = -_SECONDS
        self._known: int | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of resident pages without those of files where the system counts them; None once it has ended."""
        now = time.monotonic()
        if now - self._read >= _SECONDS:
            self._read, self._known = now, _resident(self._pid)
        return self._known


def _resident(pid: int) -> int | None:
    import psutil

    try:
        found = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    return int(found.rss - getattr(found, "shared", 0))
