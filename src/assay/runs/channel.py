"""The child's side of the conversation with its parent: events out, turns in, and the parent's death noticed.

Events go to the parent first, a JSON object a line, and then to the end of `events.jsonl`; if the disk is full the
parent still hears of it. The channel is what standard output was when the process began: file descriptor 1 then becomes
standard error, so that a library that prints cannot spoil the channel. A thread reads standard input; when it closes,
the parent is gone, and the process ends at once, whatever it does. SIGTERM, SIGINT and SIGHUP are requests to stop,
answered between steps. Where no parent of ours listens, the process itself hears its events, and there are no turns.
"""

import json
import math
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from assay.data.atomic import refused
from assay.runs.sealed import seal_line

PARENT_GONE = 3
"""Exit code of a child without a parent: that of a killed run."""

GO, AGAIN = "go", "again"
"""Words that grant a turn: the next piece of work, or one more timed block."""

_WATCH_SECONDS = 0.5


def take_standard_output() -> int:
    """A descriptor of what standard output was; from now on what is printed goes to standard error."""
    sys.stdout.flush()
    channel = os.dup(1)
    os.dup2(2, 1)
    return channel


class Voice(Protocol):
    """What a measured child needs of its conversation with its parent."""

    interrupted: bool

    def event(self, kind: str, **values: Any) -> None: ...
    def wait(self, upcoming: str) -> str: ...
    def stop_on_signals(self) -> None: ...


class _Stoppable:
    """Notes that a signal has asked this process to stop, for the work to notice between steps."""

    def __init__(self) -> None:
        self.interrupted = False

    def stop_on_signals(self) -> None:
        """Take SIGTERM, SIGINT and SIGHUP as requests to stop; SIGHUP stays ignored under `nohup`."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True


class Bystander(_Stoppable):
    """A rank for which another speaks: it says nothing, waits for nobody, and ends when its starter has ended.

    `lifeline` is a pipe that a parent of ours holds open; the rank also ends when that closes.
    """

    def __init__(self, lifeline: int | None = None) -> None:
        super().__init__()
        threading.Thread(target=_outlive_nobody, args=(os.getppid(),), daemon=True).start()
        if lifeline is not None:
            when_closed(lifeline, lambda: os._exit(PARENT_GONE))

    def event(self, kind: str, **values: Any) -> None:
        """Nothing: the first rank's event tells it."""

    def wait(self, upcoming: str) -> str:
        """Not at all: the ranks meet when the first one has its turn."""
        return ""


def closed(lifeline: int, wait_seconds: float | None = 0.0) -> bool:
    """Wait until nobody holds the other end of a pipe any more; nothing is read from it."""
    watched = select.poll()
    watched.register(lifeline, 0)  # only what poll reports unasked: that the other end has been closed
    return any(happened & select.POLLHUP for _, happened in watched.poll(wait_seconds and wait_seconds * 1000))


def when_closed(lifeline: int, act: Callable[[], None]) -> None:
    """Call `act` in a thread once the other end of a pipe is closed."""

    def watch() -> None:
        if closed(lifeline, None):
            act()

    threading.Thread(target=watch, daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(PARENT_GONE)


class Herald(Bystander):
    """Of the rank that speaks for all where no parent of ours listens: to the file, and to whoever is in this process.

    It waits for nobody, and ends when whoever started it has.
    """

    def __init__(self, events: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._tell = tell
        self._file = _EventsFile(events)

    def event(self, kind: str, **values: Any) -> None:
        """Say one event. Raises `StorageError` when it cannot be written to the file; it has been told then."""
        said = {"event": kind, **values}
        self._tell(said)
        self._file.append(_line(said))


class _EventsFile:
    """A line an event, whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with refused(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._length = _repair(self._file)

    def append(self, line: bytes) -> None:
        """Write one line. Raises `StorageError`."""
        line = seal_line(line)
        with refused(self._path):
            try:
                _write(self._file, line)
            except OSError:
                os.ftruncate(self._file, self._length)  # no half line may stand before what is written later
                raise
        self._length += len(line)


class Channel(_Stoppable):
    """Writes events to the parent and to the file, and waits for turns."""

    def __init__(self, events: Path, parent: int, requests: int, *, in_turns: bool) -> None:
        super().__init__()
        self._parent = parent
        self._in_turns = in_turns
        self._words: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._file = _EventsFile(events)
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()

    def event(self, kind: str, **values: Any) -> None:
        """Say one event. Raises `StorageError` when it cannot be written to the file; the parent has it then."""
        line = _line({"event": kind, **values})
        self._tell(line)
        self._file.append(line)

    def wait(self, upcoming: str) -> str:
        """Ask for a turn and wait until it is granted, or until someone asks to stop. Without turns, go on.

        Returns the word that granted it: `GO` or `AGAIN`; an empty text where nobody did.
        """
        if not self._in_turns or self.interrupted:
            return ""
        self._tell(_line({"event": "yield", "next": upcoming}))
        while not self.interrupted:
            word = self._words.get().decode(errors="replace")
            if word in (GO, AGAIN):
                return word
        return ""

    def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # a parent that has gone is noticed where its requests are read
            _write(self._parent, line)

    def _listen(self, requests: int) -> None:
        rest = b""
        with suppress(OSError):
            while received := os.read(requests, 4096):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._words.put(line.strip())
        os._exit(PARENT_GONE)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        super()._ask_to_stop(number, frame)
        self._words.put(b"")


def _line(event: dict[str, Any]) -> bytes:
    try:
        return json.dumps(event, allow_nan=False).encode() + b"\n"
    except ValueError:
        return json.dumps(_finite(event), allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """The value with null for every number that JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


def _repair(descriptor: int) -> int:
    """Cut off a last line that was torn by a kill; returns the file's length."""
    length = os.fstat(descriptor).st_size
    end, whole = length, 0
    while end > 0 and whole == 0:
        start = max(0, end - 65536)
        whole = os.pread(descriptor, end - start, start).rfind(b"\n") + 1
        whole, end = (start + whole if whole else 0), start
    os.ftruncate(descriptor, whole)
    return whole
