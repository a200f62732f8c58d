"""The child's channel to its parent: it sends events, receives turns and detects the parent's end.

Each event is one line of JSON. It is sent to the parent first and then appended to `events.jsonl`, so that the parent
receives it even if the disk is full. The channel is the process's original standard output. File descriptor 1 is
redirected to standard error, so that a library that prints cannot corrupt the channel.

A thread reads standard input. When that closes, the parent has ended, and the process exits at once. SIGTERM, SIGINT,
SIGHUP and the word `stop` are requests to stop, answered between steps. Under torchrun the run has no assay parent: the
process handles its events itself, and there are no turns.
"""

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from assay.files import seal_line, storage_errors
from assay.platforms import BINARY, HANG_UP, STOPPING, is_closed, is_orphaned
from assay.records.events import AGAIN, GO, STOP
from assay.units import json_text

PARENT_GONE = 3
"""Exit code of a child whose parent has ended. Its run is recorded as killed."""

_WATCH_SECONDS = 0.5
_WAKING_SECONDS = 1.0
"""Seconds after which a wait looks up. A signal that comes just before a wait begins does not end it, and its handler
runs only then."""


def take_standard_output() -> int:
    """Return a duplicate of standard output's descriptor, and redirect all later output to standard error."""
    sys.stdout.flush()
    channel = os.dup(1)
    os.dup2(2, 1)
    return channel


class Channel(Protocol):
    """Interface between a measured child and its parent."""

    interrupted: bool

    def event(self, kind: str, **values: Any) -> None: ...
    def wait(self, upcoming: str) -> str: ...
    def stop_on_signals(self) -> None: ...


class _Stoppable:
    """Records that a signal has requested a stop; the training loop checks it between steps."""

    def __init__(self) -> None:
        self.interrupted = False

    def stop_on_signals(self) -> None:
        """Handle SIGTERM, SIGINT and SIGHUP as requests to stop; SIGHUP stays ignored under `nohup`."""
        for number in STOPPING:
            if number != HANG_UP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True


class SilentChannel(_Stoppable):
    """Channel of ranks ≥ 1: it sends no events, takes no turns, and exits when the process that started it has ended.

    `lifeline` is a pipe that the parent holds open; the rank also exits when it closes.
    """

    def __init__(self, lifeline: int | None = None) -> None:
        super().__init__()
        threading.Thread(target=_outlive_nobody, args=(os.getppid(),), daemon=True).start()
        if lifeline is not None:
            when_closed(lifeline, lambda: os._exit(PARENT_GONE))

    def event(self, kind: str, **values: Any) -> None:
        """Discard the event, because rank 0 sends it."""

    def wait(self, upcoming: str) -> str:
        """Return at once, because the ranks synchronize when rank 0 has its turn."""
        return ""


def when_closed(lifeline: int, act: Callable[[], None]) -> None:
    """Call `act` in a thread once the other end of a pipe is closed."""

    def watch() -> None:
        if is_closed(lifeline, None):
            act()

    threading.Thread(target=watch, daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    while not is_orphaned(parent):
        time.sleep(_WATCH_SECONDS)
    os._exit(PARENT_GONE)


class TorchrunChannel(SilentChannel):
    """Channel of rank 0 without an assay parent: events are written to the file and passed to `tell` in this process.

    It takes no turns, and exits when the process that started it has ended.
    """

    def __init__(self, events: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._tell = tell
        self._file = _EventsFile(events)

    def event(self, kind: str, **values: Any) -> None:
        """Pass one event to `tell`, then write it to the file. Raises `StorageError` if the file refuses it."""
        said = {"event": kind, **values}
        self._tell(said)
        self._file.append(_line(said))


class _EventsFile:
    """The file of events, one line each, written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o644)
            self._length = _repair(self._file)

    def append(self, line: bytes) -> None:
        """Write one line. Raises `StorageError`."""
        line = seal_line(line)
        with storage_errors(self._path):
            try:
                _write(self._file, line)
            except OSError:
                os.ftruncate(self._file, self._length)  # later events must not follow half a line
                raise
        self._length += len(line)


class ParentChannel(_Stoppable):
    """Sends events to the parent and to the file, and waits for turns."""

    def __init__(self, events: Path, parent: int, requests: int, *, in_turns: bool) -> None:
        super().__init__()
        self._parent = parent
        self._in_turns = in_turns
        self._words: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._file = _EventsFile(events)
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()

    def event(self, kind: str, **values: Any) -> None:
        """Send one event to the parent, then write it to the file. Raises `StorageError` if the file refuses it."""
        line = _line({"event": kind, **values})
        self._tell(line)
        self._file.append(line)

    def wait(self, upcoming: str) -> str:
        """Request a turn, and wait until it is granted or a stop is requested. Return at once if the run has no turns.

        Returns the word that granted the turn, `GO` or `AGAIN`, and an empty string if none was granted.
        """
        if not self._in_turns or self.interrupted:
            return ""
        self._tell(_line({"event": "yield", "next": upcoming}))
        while not self.interrupted:
            with suppress(queue.Empty):
                word = self._words.get(timeout=_WAKING_SECONDS).decode(errors="replace")
                if word in (GO, AGAIN):
                    return word
        return ""

    def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # the end of the parent is detected where requests are read
            _write(self._parent, line)

    def _listen(self, requests: int) -> None:
        rest = b""
        with suppress(OSError):
            while received := os.read(requests, 4096):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self.interrupted = self.interrupted or line.strip() == STOP.encode()
                    self._words.put(line.strip())
        os._exit(PARENT_GONE)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        super()._ask_to_stop(number, frame)
        self._words.put(b"")


def _line(event: dict[str, Any]) -> bytes:
    return json_text(event).encode() + b"\n"


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


def _repair(descriptor: int) -> int:
    """Cut off a last line that a kill left incomplete; returns the file's length in bytes."""
    length = os.fstat(descriptor).st_size
    end, whole = length, 0
    while end > 0 and whole == 0:
        start = max(0, end - 65536)
        os.lseek(descriptor, start, os.SEEK_SET)
        whole = os.read(descriptor, end - start).rfind(b"\n") + 1
        whole, end = (start + whole if whole else 0), start
    os.ftruncate(descriptor, whole)
    return whole
