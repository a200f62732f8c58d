"""Ranks that go on when one of them has ended: they are given a while to end by themselves, and are killed then.

The last that ranks do together is to meet, and whoever misses one of them can finish nothing more: no step, and no
checkpoint. So from the first end on, well or not, none has anything left to do that takes long. But one that waits for
the others in torch's own code cannot heed a signal there, and torch's agent would wait longer than is promised.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

GRACE_SECONDS = 20.0
"""For a rank to write down how it ended."""

_TICK_SECONDS = 0.2


@contextmanager
def killed_in_the_end(program: str, ranks: int, grace_seconds: float = GRACE_SECONDS) -> Iterator[set[int]]:
    """Watch this process's children that run `program`, of which there will be `ranks`, while the block lasts.

    Yields the numbers of those that had to be killed.
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
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # torch starts each in a session of its own


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return program in process.cmdline()
    except psutil.Error:
        return False


def _works(process: psutil.Process) -> bool:
    """Whether it has not ended; one that has is left for torch's agent to find."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
