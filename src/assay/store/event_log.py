"""The event log of a run, `events.jsonl`: one JSON object per line; a damaged line affects no other line.

A line is damaged if its checksum does not match, if it is no JSON object, or if its event lacks a required field. A
last line that a kill cut off has no line break, and does not count as damaged.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.store.sealed import open_line

Event = dict[str, Any]
"""One line of `events.jsonl`; its kind is under the key "event"."""

_ABSENT = object()
_LARGEST = 2**63
"""Larger counts fit no SQLite column."""


@dataclass(frozen=True)
class Log:
    """The content of an event log."""

    events: list[Event]
    """Whole events, oldest first."""
    damaged: int
    """Number of lines that cannot be read."""


def read_log(path: Path) -> Log:
    """Read a log; a missing file is an empty log, and an unreadable one counts as one damaged line."""
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Log([], 0)
    except OSError:
        return Log([], 1)
    torn = parse_event(rest)
    # A kill leaves the start of a line. A whole event and one byte more is a line whose line break is damaged.
    broken = torn is None and parse_event(rest[:-1]) is not None
    found = [parse_event(line) for line in lines]
    whole = [event for event in (*found, torn) if event is not None]
    return Log(whole, found.count(None) + broken)


def read_since(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the whole events after `offset` bytes of a growing log, and the offset from which to read on.

    A missing file is an empty log, and a line without its line break is left for the next call.
    """
    try:
        with path.open("rb") as log:
            log.seek(offset)
            lines, separator, _ = log.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], offset
    found = [parse_event(line) for line in lines.split(b"\n")] if separator else []
    return [event for event in found if event is not None], offset + len(lines) + len(separator)


def parse_event(line: bytes) -> Event | None:
    """Parse a line as an event; None if it is not one, or lacks a required field of its kind."""
    try:
        event = json.loads(open_line(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    needed = _NEEDED.get(event["event"], {})
    return event if all(is_one(event.get(name, _ABSENT)) for name, is_one in needed.items()) else None


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def _number(value: object) -> bool:
    return isinstance(value, float) or _count(value)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _or_nothing(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_one(value)


def _if_any(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is _ABSENT or is_one(value)


_NEEDED: Mapping[str, Mapping[str, Callable[[object], bool]]] = {
    "start": {"resumed_at": _if_any(_count)},
    "step": {
        "step": _count,
        "loss": _or_nothing(_number),
        "seconds": _number,
        "tokens": _count,
        "data_seconds": _if_any(_number),
    },
    "evaluation": {
        "step": _count,
        "loss": _or_nothing(_number),
        "perplexity": _or_nothing(_number),
        "bits_per_byte": _or_nothing(_number),
    },
    "evidence": {"optimization": _text, "observed": _text, "verdict": lambda value: isinstance(value, bool)},
    "block": {
        "steps": _count,
        "seconds": _number,
        "median_step_seconds": _number,
        "tokens": _count,
        "process_peak_bytes": _or_nothing(_count),
    },
    "router": {"layers": lambda value: isinstance(value, list)},
    "phase": {"name": _text},
    "yield": {"next": _text},
    "checkpoint": {"step": _count},
}
"""Fields that the readers of each kind of event require."""
