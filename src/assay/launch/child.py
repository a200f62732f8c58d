"""The parent's handle of a measured child: read its events, grant its turns, stop it, and find how it ended.

The child's standard output is a channel with one event per line. A thread drains it, so that a parent that prints
slowly never delays a timed step. A child that exceeds its time limit is requested to stop, and then killed with every
process that it started. A run with turns works piece by piece, and `turn` grants each piece. Its limit counts the time
in which the child works, without the time in which it waits.

A killed child writes no result. Its exit code then shows a signal, a requested stop or a failure, and the last line of
its log is the reason. Its progress is read from its events.

Signal 9 is the system's if it counted a kill for want of memory in the meantime. Then the run is out of memory, which
is a result, and is not repeated as a fault of the machine would be.
"""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import IO, Literal, Protocol, Self

from assay.errors import STANDS, ProcessKilled, StorageError, UsageError
from assay.hardware.detect import oom_kills
from assay.platforms import KILL, SIGNALS_STOP, kill_group
from assay.records.events import GO, STOP, LogEvent, YieldEvent
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.event_log import parse_event
from assay.store.index import Store
from assay.store.result import compose, ended_unseen
from assay.store.run_folder import RunFolder

Stop = Literal["interrupted", "timed_out"]
"""Reason for which a parent requested its child to end."""

_UNRECORDED = "interrupted before it recorded its result; its last checkpoint is kept"
_RAN_OUT = "the system counted a process that it killed because memory ran out"


def ending(
    folder: RunFolder,
    exit_code: int,
    stop: Stop | None,
    limit_seconds: float | None,
    earlier: int = 0,
    *,
    ran_out: bool = False,
) -> RunResult:
    """Return the child's own result, or compose one from its exit code, log and events.

    `earlier` is the stamp of the result that existed before the child began, and is not the child's own. `ran_out` is
    true if the system killed a process of the child's control group while it ran, because memory ran out. Raises
    `UsageError` if `run.json` is unreadable.
    """
    killed = Status.OUT_OF_MEMORY if ran_out and exit_code == -KILL else Status.KILLED
    too_long = f"stopped after {limit_seconds or 0:g} s, its time limit"
    try:
        own = folder.result() if folder.stamp() != earlier else None
    except UsageError as error:
        return compose(folder, Status.FAILED, str(error))
    if own is not None and ended_unseen(own):
        own = None  # it is a reader's, who found the child dead before its parent did
    if own is not None and exit_code < 0 and own.status is Status.FAILED and own.config.ranks > 1:
        # Ranks whose launcher has died lose their rendezvous store, and fail because of that.
        return own.model_copy(update={"status": killed, "reason": _without_launcher(-exit_code, ran_out)})
    if own is not None and own.status is Status.KILLED and ran_out:  # one of its ranks was, as their launcher saw
        return own.model_copy(update={"status": Status.OUT_OF_MEMORY, "reason": f"{own.reason}; {_RAN_OUT}"})
    if own is not None:
        in_time = stop != "timed_out" or own.status is not Status.INTERRUPTED
        return own if in_time else own.model_copy(update={"status": Status.TIMED_OUT, "reason": too_long})
    if stop == "timed_out":
        return compose(folder, Status.TIMED_OUT, too_long)
    if stop == "interrupted":
        return compose(folder, Status.INTERRUPTED, _UNRECORDED)
    if exit_code < 0:
        reason = _signalled if folder.spec().config.ranks == 1 else _without_launcher
        return compose(folder, killed, reason(-exit_code, ran_out))
    words = folder.last_words() or f"{folder.log_file} has no message"
    return compose(folder, Status.FAILED, f"ended with exit code {exit_code} and without a result: {words}")


def _without_launcher(number: int, ran_out: bool) -> str:
    return f"the launcher of its ranks was {_signalled(number, ran_out)}, and the ranks could not continue without it"


def check_alive(exit_code: int, what: str) -> None:
    """Raise `ProcessKilled` if the exit code of a process says that a signal ended it; `what` names the process."""
    if exit_code < 0:
        raise ProcessKilled(f"{what} was {_signalled(-exit_code, False)}")


def _signalled(number: int, ran_out: bool) -> str:
    if number == KILL and ran_out:
        return f"killed by signal 9; {_RAN_OUT}"
    if number == KILL:
        return "killed by signal 9, perhaps by the system because memory ran out"
    return f"killed by signal {number} ({signal.strsignal(number) or 'unknown'})"


GRACE_SECONDS = 30.0
"""Time in which a child must finish its step and write its checkpoint after a request to stop."""

_TICK_SECONDS = 0.1
_LAST_EVENTS_SECONDS = 1.0
"""Time to read a dead child's last events. After it, only processes that the child started hold the channel open."""


class Process(Protocol):
    """The part of `subprocess.Popen` that a parent uses."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Child:
    """A run in progress. Used as a context manager, it leaves no process running."""

    def __init__(
        self,
        folder: RunFolder,
        process: Process,
        store: Store,
        *,
        in_turns: bool,
        timeout: float | None,
        earlier: int = 0,
        oom_kills_before: int | None = None,
    ) -> None:
        self.folder = folder
        self.upcoming: str | None = None
        """The piece of work that the child waits for: `start`, `block`, `finish` or `repeat`; None while it works."""
        self.finished = False
        """True once the child has ended and all its events were delivered."""
        self._process = process
        self._store = store
        self._in_turns = in_turns
        self._limit = timeout
        self._left = float("inf") if timeout is None else timeout
        self._stop: Stop | None = None
        self._silent = False
        self._result: RunResult | None = None
        self._earlier = earlier
        """Stamp of the result that was in the folder before this child was started."""
        self._oom_kills_before = oom_kills_before
        """The system's count of kills for want of memory before this child was started; None if it does not count."""
        self._channel: queue.SimpleQueue[LogEvent | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def events(self) -> Iterator[LogEvent]:
        """Yield events as they happen, until the child has ended. Every turn that it requests is granted."""
        while not self.finished:
            if self._in_turns:
                yield from self.turn()
            else:
                yield from self._until_yield()

    def turn(self, word: str = GO) -> Iterator[LogEvent]:
        """Grant the next piece of work, or with `AGAIN` one more block. Yields the events until it is done."""
        if self.upcoming is None:
            yield from self._until_yield()
        if not self.finished:
            self.upcoming = None
            self._say(f"{word}\n".encode())
            yield from self._until_yield()

    def interrupt(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Request that the child finish its step, save and end; it is killed after `grace_seconds`."""
        self._ask_to_stop("interrupted", grace_seconds)

    def kill(self) -> None:
        """Kill the child at once, with every process that it started."""
        kill_group(self._process.pid)

    def result(self) -> RunResult:
        """Let the child finish, and return its result, which is then also in the folder and in the store."""
        for _ in self.events():
            pass
        if self._result is None:
            code, before = self._process.wait(), self._oom_kills_before
            ran_out = before is not None and (oom_kills() or 0) > before
            found = ending(self.folder, code, self._stop, self._limit, self._earlier, ran_out=ran_out)
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

    def _until_yield(self) -> Iterator[LogEvent]:
        """Yield events until the child waits for a turn or has ended, within its time limit."""
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
                    if isinstance(event, YieldEvent):
                        self.upcoming = event.next
                        return
            now, before = time.monotonic(), mark
            mark = now
            self._spend(now - before)
        self._reap()

    def _spend(self, seconds: float) -> None:
        """Subtract working time from the limit. When none is left, request a stop, and kill after the grace time."""
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
            if SIGNALS_STOP:
                self._process.terminate()
            else:
                self._say(f"{STOP}\n".encode())

    def _reap(self) -> None:
        """Wait for the process to exit. It sends no more events, so it has ended or is about to."""
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.finished = True
        # Processes that the child started are in its session, and must not outlive it.
        self.kill()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _say(self, line: bytes) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # the child has just died, which the closed channel will show
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
        """Write a result that the child did not write, and index it. If it trained no step, the earlier one stands."""
        try:
            if self.folder.stands and result.status is not Status.DONE:
                self.folder.restore()
            stamp = self.folder.stamp()
            if stamp != 0 and stamp == self._earlier:
                return result.model_copy(update={"reason": f"{result.reason}; {STANDS}"})
            if stamp == 0 or self._differs(result):
                self.folder.write_result(result)
            self._store.ingest(result, self.folder.stamp())
        except StorageError as error:
            return result.model_copy(update={"status": Status.FAILED, "reason": str(error)})
        return result

    def _differs(self, result: RunResult) -> bool:
        """True if the folder has another result: the child's own before its end was known, or that of a reader."""
        try:
            return self.folder.result() != result
        except UsageError:
            return False
