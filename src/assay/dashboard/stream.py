"""A growing log for many readers: it is read and parsed once, and browsers receive what is new as server-sent events.

A log is read in pieces of at most a mebibyte. The meaning of a piece is kept as a batch with the offset at its end. A
reader that knows everything up to an offset receives the batches that end after it. So nothing is lost if it returns
later, or to a server that was started anew.

Each message is a list of all batches up to its offset, because a browser may lose its connection after any message. A
browser that lost its connection sends the id of the last message, and receives exactly what followed. A message `now`
is about the present and in no log, so it has no id. The stream ends with a message `over` once the writer of the log
has ended, and without one if the server ends.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from assay.records.events import LogEvent
from assay.store.event_log import read_since
from assay.units import json_text

_PIECE_BYTES = 1 << 20
_MOST_LOGS = 32
Batch = dict[str, Any]
Digest = Callable[[Sequence[LogEvent]], Sequence[Batch]]
"""Returns the meaning of a piece of a log, in order. It may keep a state, because pieces arrive in order."""
_PAUSE_SECONDS = 1.0
_QUIET_PAUSES = 15
"""Pauses after which a comment is sent, so that a closed connection is noticed."""


class Tail:
    """One growing log, digested. Any thread may use it."""

    def __init__(self, path: Path, digest: Digest) -> None:
        self._path = path
        self._digest = digest
        self._offset = 0
        self._batches: list[tuple[int, Batch]] = []
        self._lock = threading.Lock()

    def since(self, offset: int) -> tuple[list[Batch], int]:
        """Return the batches after an offset, and the offset from which to go on; reads what is new in the log."""
        with self._lock:
            while self._read():
                pass
            return [batch for end, batch in self._batches if end > offset], self._offset

    def _read(self) -> bool:
        """Read one piece; true if there was any."""
        events, end = read_since(self._path, self._offset, _PIECE_BYTES)
        if end == self._offset:
            return False
        self._batches += [(end, batch) for batch in self._digest(events)]
        self._offset = end
        return True


class Tails:
    """The tails of runs, by path, which are large; the one that was used least recently is forgotten."""

    def __init__(self) -> None:
        self._tails: OrderedDict[Path, Tail] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path, digest: Callable[[], Digest]) -> Tail:
        """Return the tail of a log; `digest` makes the digest of a new one."""
        with self._lock:
            if path not in self._tails:
                self._tails[path] = Tail(path, digest())
            self._tails.move_to_end(path)
            while len(self._tails) > _MOST_LOGS:
                self._tails.popitem(last=False)
            return self._tails[path]


def follow(
    request: Request, tail: Tail, is_over: Callable[[], bool], present: Callable[[], object] = lambda: None
) -> StreamingResponse:
    """Return the stream of a log from the offset that the request names; `is_over` says whether its writer ended.

    What is `present` beside a log that grows is sent whenever it has changed; None is nothing to tell.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    ending: Event = request.app.state.memory.ending
    messages = _messages(_Source(tail, is_over, present), ending, asked_offset(request))
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


def asked_offset(request: Request) -> int:
    """Offset from which a browser goes on; 0 for a text that is no number."""
    text = request.headers.get("last-event-id") or request.query_params.get("offset", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


class _News(NamedTuple):
    """Findings of one look."""

    batches: list[Batch]
    """Batches after the offset that the reader knows."""
    offset: int
    """Place from which to go on."""
    over: bool
    """True if no line will follow."""
    present: object


class _Source(NamedTuple):
    """A log, with what is known beside it."""

    tail: Tail
    is_over: Callable[[], bool]
    present: Callable[[], object]

    def news(self, offset: int, grew: bool) -> _News:
        """Return what follows an offset. A log that `grew` at the last look has a writer, so no end is looked for."""
        over = not grew and self.is_over()  # before the log is read, so that no last line is missed
        return _News(*self.tail.since(offset), over, None if over else self.present())


async def _messages(source: _Source, ending: Event, offset: int) -> AsyncIterator[str]:
    quiet, present, grew = 0, None, False
    while not ending.is_set():
        # One way to a thread and back for all questions: it costs more than their answers.
        news = await run_in_threadpool(source.news, offset, grew)
        offset, grew = news.offset, bool(news.batches)
        said = message(news.batches, offset) if news.batches else ""
        if news.present not in (None, present):
            present = news.present
            said += message(present, None, "now")
        if said:
            yield said
        if news.over:
            yield message([], offset, "over")
            return
        quiet = 0 if said else quiet + 1
        if quiet >= _QUIET_PAUSES:
            quiet = 0
            yield ":\n\n"
        await asyncio.sleep(_PAUSE_SECONDS)


def message(value: Any, offset: int | None, event: str = "") -> str:
    """Return one message of a stream, without an id if it has no offset; JSON has no line break, which would end it."""
    name = f"event: {event}\n" if event else ""
    place = "" if offset is None else f"id: {offset}\n"
    return f"{name}{place}data: {json_text(value, separators=(',', ':'))}\n\n"
