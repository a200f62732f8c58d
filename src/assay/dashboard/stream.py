"""Server-sent events: what is new in a log, as messages whose id is the offset from which a browser goes on.

Each message is a list of all batches up to its offset, because a browser may lose its connection after any message. A
browser that lost its connection sends the id of the last message, and receives exactly what followed. The stream ends
with a message `over` once the writer of the log has ended, and without one if the server ends.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from threading import Event
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from assay.dashboard.tail import Tail

_PAUSE_SECONDS = 1.0
_QUIET_PAUSES = 15
"""Pauses after which a comment is sent, so that a closed connection is noticed."""


def follow(request: Request, tail: Tail, is_over: Callable[[], bool]) -> StreamingResponse:
    """Return the stream of a log from the offset that the request names; `is_over` says whether its writer ended."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    ending: Event = request.app.state.memory.ending
    messages = _messages(tail, is_over, ending, asked_offset(request))
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


def asked_offset(request: Request) -> int:
    """Offset from which a browser goes on; 0 for a text that is no number."""
    text = request.headers.get("last-event-id") or request.query_params.get("offset", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


async def _messages(tail: Tail, is_over: Callable[[], bool], ending: Event, offset: int) -> AsyncIterator[str]:
    quiet = 0
    while not ending.is_set():
        # The end is looked at before the log, so that no last line is missed.
        over = await run_in_threadpool(is_over)
        batches, offset = await run_in_threadpool(tail.since, offset)
        if batches:
            yield message(batches, offset)
        if over:
            yield message([], offset, "over")
            return
        quiet = 0 if batches else quiet + 1
        if quiet >= _QUIET_PAUSES:
            quiet = 0
            yield ":\n\n"
        await asyncio.sleep(_PAUSE_SECONDS)


def message(value: Any, offset: int, event: str = "") -> str:
    """Return one message of a stream; JSON has no line break, which would end it."""
    name = f"event: {event}\n" if event else ""
    return f"{name}id: {offset}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
