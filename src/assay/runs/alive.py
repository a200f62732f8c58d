"""Whether the process that measures a run is still there: seen from the process itself, never from what it last said.

A process is the same one only if it has the same number on the same host and started at the same moment. The moment is
counted in clock ticks since the host's boot, so that setting the clock changes nothing. A run without a known process
is about to start while its folder is locked. Nothing can be seen from here of a process on another host, or in a
container that is gone: such a run is believed for as long as it gives signs of life.
"""

import fcntl
import socket
from contextlib import suppress
from pathlib import Path

from assay.errors import UsageError
from assay.runs.folder import Process, RunFolder

_CLOCK_SLACK_SECONDS = 2.0
"""By how much the start of a process may seem to move where only the wall clock is known."""

_SILENT_SECONDS = 3600.0
"""Longer than a step, an evaluation or a wait for a turn takes."""


def this_process(pid: int) -> Process | None:
    """A process of this host as it will be known later; None when it has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        started, ticks = process.create_time(), _start_ticks(pid)
        return Process(host=socket.gethostname(), pid=pid, started=started, start_ticks=ticks, boot=_boot())
    except psutil.NoSuchProcess:
        return None


def is_running(folder: RunFolder) -> bool:
    """Whether the process that measures this run is there, or is about to be."""
    try:
        known = folder.process()
    except UsageError:
        return _locked(folder)
    if known is None:
        return folder.stamp() == 0 and _locked(folder)
    if known.host != socket.gethostname():
        return folder.stamp() == 0 and folder.quiet_seconds() < _SILENT_SECONDS
    now = this_process(known.pid)
    return now is not None and _same(known, now)


def _locked(folder: RunFolder) -> bool:
    """Whether a process of this host holds the run's lock, which tells where `process.json` does not."""
    with suppress(OSError), folder.lock_file.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _same(known: Process, now: Process) -> bool:
    """Two sightings of one process number are of one process."""
    if known.start_ticks is not None and now.start_ticks is not None:
        return (known.boot, known.start_ticks) == (now.boot, now.start_ticks)
    return abs(now.started - known.started) < _CLOCK_SLACK_SECONDS


def _start_ticks(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may hold blanks; the start is the 22nd field, the 20th after the name.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


def _boot() -> str | None:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None
