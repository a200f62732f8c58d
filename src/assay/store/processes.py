"""Liveness of the process that measures a run, read from the process itself and never from its last event.

Two sightings are of one process only if host, process number and start time agree. The start time is counted in clock
ticks since the host's boot, so that setting the clock changes nothing. A run without a recorded process is about to
start if its folder is locked. A process on another host, or in a container that no longer exists, cannot be observed
from here. Such a run counts as running while it has no result and its files have changed within the last hour.
"""

import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from assay.errors import UsageError
from assay.files import open_regular
from assay.platforms import lock
from assay.store.run_folder import RunFolder, RunProcess

_CLOCK_SLACK_SECONDS = 2.0
"""Tolerance for the start time of a process if only the wall clock is known."""

_SILENT_SECONDS = 3600.0
"""Longer than a step, an evaluation or a wait for a turn takes."""

_TRIES, _RETRY_SECONDS = 20, 0.01
"""Attempts to lock a file, and the pause between two of them."""


def this_process(pid: int) -> RunProcess | None:
    """Identify a process of this host, so that it can be recognized later; None if it has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        started, ticks = process.create_time(), start_ticks(pid)
        return RunProcess(host=socket.gethostname(), pid=pid, started=started, start_ticks=ticks, boot=_boot())
    except psutil.NoSuchProcess:
        return None


def is_running(folder: RunFolder) -> bool:
    """True if the process that measures this run is alive, or is about to start."""
    try:
        known = folder.process()
    except UsageError:
        return _locked(folder)
    if known is None:
        return folder.stamp() == 0 and _locked(folder)
    if not is_here(known):
        return folder.stamp() == 0 and folder.quiet_seconds() < _SILENT_SECONDS
    return is_alive(known)


def is_here(known: RunProcess) -> bool:
    """True if a process is of this host, so that it can be observed."""
    return known.host == socket.gethostname()


def is_alive(known: RunProcess) -> bool:
    """True if a process of this host has not ended."""
    now = this_process(known.pid)
    return now is not None and _same(known, now)


def try_lock(file: IO[bytes]) -> bool:
    """Lock an open file for this process; False if another process holds it. Raises `OSError` if files have no locks.

    A reader that looks whether the file is locked (`is_locked`) holds it for an instant, so the first refusal is none.
    """
    for _ in range(_TRIES):
        try:
            lock(file)
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
        else:
            return True
    return False


def is_locked(path: Path) -> bool:
    """True if a process holds a file's lock, or if that cannot be told; a missing file has none."""
    try:
        with open_regular(path) as file:
            lock(file, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _locked(folder: RunFolder) -> bool:
    """True if a process of this host holds the run's lock; consulted if `process.json` is missing or unreadable."""
    with suppress(OSError), open_regular(folder.lock_file) as file:
        try:
            lock(file, shared=True)
        except BlockingIOError:
            return True
    return False


def _same(known: RunProcess, now: RunProcess) -> bool:
    """True if two sightings of one process number are of one process."""
    if known.start_ticks is not None and now.start_ticks is not None:
        return (known.boot, known.start_ticks) == (now.boot, now.start_ticks)
    return abs(now.started - known.started) < _CLOCK_SLACK_SECONDS


def start_ticks(pid: int) -> int | None:
    """Return the clock ticks between the host's boot and a process's start; None where no `/proc` tells them."""
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may contain spaces. The start time is field 22, the 20th after the name.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


@cache
def _boot() -> str | None:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None
