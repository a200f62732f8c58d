"""A measured child at work: listen to it, grant it its turns, stop it, and never wait for it without a limit.

Its standard output is a channel of one event a line. A thread empties it, so that a parent that is slow to print never
makes a timed step wait. A child that says nothing until its time is out is asked to stop, and then killed with all
that it started. A run with turns does its work piece by piece, each piece granted by `turn`; the limit counts the time
that the child works, not the time that it waits.
"""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from assay.errors import StorageError
from assay.runs.channel import GO
from assay.runs.ending import Stop, ending
from assay.runs.folder import RunFolder
from assay.runs.log import Event, parse_event
from assay.runs.record import RunResult, Status
from assay.runs.store import Store

GRACE_SECONDS = 30.0
"""How long a child may take to finish its step and write its checkpoint once it is asked to stop."""

_TICK_SECONDS = 0.1
_LAST_EVENTS_SECONDS = 1.0
"""For what a dead child said last; longer than that only its own children can hold the channel open."""


class Child:
    """A run in progress. As a context manager it leaves no process behind."""

    def __init__(
        self,
        folder: RunFolder,
        process: "subprocess.Popen[bytes]",
        store: Store,
        *,
        in_turns: bool,
        timeout: float | None,
        earlier: int = 0,
    ) -> None:
        self.folder = folder
        self.upcoming: str | None = None
        """What it waits to be granted: `start`, `block`, `finish` or `repeat`; None while it works."""
        self.finished = False
        """Whether it has ended and everything that it said has been handed out."""
        self._process = process
        self._store = store
        self._in_turns = in_turns
        self._limit = timeout
        self._left = float("inf") if timeout is None else timeout
        self._stop: Stop | None = None
        self._silent = False
        self._result: RunResult | None = None
        self._earlier = earlier
        """Stamp of the result that stood in the folder before this child was started."""
        self._channel: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def events(self) -> Iterator[Event]:
        """What happens, as it happens, until the child has ended; a child with turns is granted each as it asks."""
        while not self.finished:
            if self._in_turns:
                yield from self.turn()
            else:
                yield from self._until_yield()

    def turn(self, word: str = GO) -> Iterator[Event]:
        """Grant the next piece of work, or with `AGAIN` one more block, and hand out what happens until it is done."""
        if self.upcoming is None:
            yield from self._until_yield()
        if not self.finished:
            self.upcoming = None
            self._say(f"{word}\n".encode())
            yield from self._until_yield()

    def interrupt(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask it to finish its step, save and end; it is killed when it has not after `grace_seconds`."""
        self._ask_to_stop("interrupted", grace_seconds)

    def kill(self) -> None:
        """End it now, with everything that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def result(self) -> RunResult:
        """Let it do what is left, and say how it ended. The folder and the store have the result when this returns."""
        for _ in self.events():
            pass
        if self._result is None:
            found = ending(self.folder, self._process.returncode, self._stop, self._limit, self._earlier)
            self._result = self._keep(found)
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.finished:
            self.kill()
            self._reap()

    def _until_yield(self) -> Iterator[Event]:
        """Events until the child waits for its turn or has ended, never for longer than it may take."""
        mark = time.monotonic()
        died: float | None = None
        while not self._silent:
            try:
                event = self._channel.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                now = time.monotonic()
                if self._process.poll() is not None:
                    died = died or now
                    self._silent = now - died > _LAST_EVENTS_SECONDS
            else:
                self._silent = event is None
                if event is not None:
                    yield event
                    if event["event"] == "yield":
                        self.upcoming = event["next"]
                        return
            now, before = time.monotonic(), mark
            mark = now
            self._spend(now - before)
        self._reap()

    def _spend(self, seconds: float) -> None:
        """Take time off what the child may still use; when none is left, stop it, and the next time kill it."""
        self._left -= seconds
        if self._left > 0:
            return
        if self._stop is None:
            self._ask_to_stop("timed_out", min(GRACE_SECONDS, 10.0))
        else:
            self.kill()
            self._left = float("inf")

    def _ask_to_stop(self, why: Stop, grace_seconds: float) -> None:
        if self._stop is None:
            self._stop = why
            self._left = grace_seconds
            self._process.terminate()

    def _reap(self) -> None:
        """Wait for the process itself: it says nothing more, so it has ended or is about to."""
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.finished = True
        # Whatever it started is of its session, and must not outlive it.
        self.kill()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _say(self, line: bytes) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # it has just died, and the channel will show it
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def _listen(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout as channel:
                for line in channel:
                    event = parse_event(line)
                    if event is not None:
                        self._channel.put(event)
        self._channel.put(None)

    def _keep(self, result: RunResult) -> RunResult:
        """Write what the child could not, and tell the store. A child that never began leaves the earlier result."""
        try:
            stamp = self.folder.stamp()
            if stamp != 0 and stamp == self._earlier:
                return result
            if stamp == 0 or result.status in (Status.TIMED_OUT, Status.KILLED):
                self.folder.write_result(result)
            self._store.ingest(result, self.folder.stamp())
        except StorageError as error:
            return result.model_copy(update={"status": Status.FAILED, "reason": str(error)})
        return result
