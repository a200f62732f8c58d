"""Ranks that do not end after another rank has ended: they have a grace time, and are then killed.

The last thing that ranks do together is to synchronize. If one of them is missing, the others can finish neither a step
nor a checkpoint. So after the first end, successful or not, no rank has long work left. But a rank that waits for the
others inside torch cannot handle a signal, and torch's agent would wait longer than assay promises.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from assay.platforms import kill_group

GRACE_SECONDS = 20.0
"""Time in which a rank must record its end."""

_TICK_SECONDS = 0.2


@contextmanager
def killed_in_the_end(program: str, ranks: int, grace_seconds: float = GRACE_SECONDS) -> Iterator[set[int]]:
    """Watch this process's `ranks` children that run `program`, while the block lasts.

    Yields the set of process numbers of those that had to be killed.
    """
    killed: set[int] = set()
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(program, ranks, grace_seconds, killed, over), daemon=True)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def _watch(program: str, ranks: int, grace_seconds: float, killed: set[int], over: threading.Event) -> None:
    workers: dict[int, psutil.Process] = {}
    deadline: float | None = None
    while not over.wait(_TICK_SECONDS):
        if len(workers) < ranks and deadline is None:
            workers |= {one.pid: one for one in psutil.Process().children() if _runs(one, program)}
        alive = [one.pid for one in workers.values() if _works(one)]
        if deadline is None and len(alive) < len(workers):
            deadline = time.monotonic() + grace_seconds
        if deadline is not None and time.monotonic() >= deadline:
            for pid in alive:
                killed.add(pid)
                kill_group(pid)  # torch starts each rank in its own session


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return program in process.cmdline()
    except psutil.Error:
        return False


def _works(process: psutil.Process) -> bool:
    """True if the process has not ended; torch's agent finds those that have."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
