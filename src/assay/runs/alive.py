"""Whether the process that measures a run is still there: seen from the process itself, never from what it last said.

A process is the same one only if it has the same number on the same host and started at the same moment. Nothing can
be seen from here of a process on another host, or in a container that is gone: such a run is believed for as long as it
gives signs of life.
"""

import socket

from assay.errors import UsageError
from assay.runs.folder import Process, RunFolder

_CLOCK_SLACK_SECONDS = 2.0
"""By how much the start of a process may seem to move when the host's clock is set."""

_STARTING_SECONDS = 60.0
"""How long a run may be without a process: its parent is between making the folder and starting the child."""

_SILENT_SECONDS = 3600.0
"""Longer than a step, an evaluation or a wait for a turn takes."""


def this_process(pid: int) -> Process | None:
    """A process of this host as it will be known later; None when it has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Process(host=socket.gethostname(), pid=pid, started=process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_running(folder: RunFolder) -> bool:
    """Whether the process that measures this run is there, or is about to be."""
    try:
        known = folder.process()
    except UsageError:
        return False
    if known is None:
        return folder.stamp() == 0 and folder.age_seconds() < _STARTING_SECONDS
    if known.host != socket.gethostname():
        return folder.stamp() == 0 and folder.quiet_seconds() < _SILENT_SECONDS
    now = this_process(known.pid)
    return now is not None and abs(now.started - known.started) < _CLOCK_SLACK_SECONDS
