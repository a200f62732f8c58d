"""The event log of a run, `events.jsonl`: one JSON object per line; a damaged line affects no other line.

A line is damaged if its checksum does not match, or if it is no JSON object. It is also damaged if its event lacks a
required field, or has a figure that cannot be. A last line that a kill cut off has no
line break, and does not count as damaged.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from assay.files import is_sealed_line, open_line, open_regular, read_file, seal_line, storage_errors
from assay.records.events import LogEvent, event_of
from assay.records.run import check_possible, parse_json
from assay.units import json_text

Event = dict[str, Any]
"""One line of `events.jsonl`, as it is written; its kind is under the key "event"."""


@dataclass(frozen=True)
class Log:
    """The content of an event log."""

    events: list[LogEvent]
    """Whole events, oldest first."""
    damaged: int
    """Number of lines that cannot be read."""
    unsealed: int = 0
    """Number of lines without a checksum, of which nobody can tell whether they are damaged."""


def append(path: Path, event: Event, *, flushed: bool = True) -> None:
    """Append one event as a line, and flush it to the disk unless `flushed` is false. Raises `StorageError`.

    If the last line was cut off, it is ended first, so that it spoils no other.
    """
    line = seal_line(json_text(event).encode() + b"\n")
    with storage_errors(path), path.open("ab+") as log:
        log.write(line if _whole(log) else b"\n" + line)
        log.flush()
        if flushed:
            os.fsync(log.fileno())


def _whole(log: IO[bytes]) -> bool:
    """True if a log is empty or ends with a line break."""
    if log.seek(0, os.SEEK_END) == 0:
        return True
    log.seek(-1, os.SEEK_END)
    return log.read(1) == b"\n"


def read_log(path: Path) -> Log:
    """Read a log; a missing file is an empty log, and an unreadable one counts as one damaged line."""
    try:
        *lines, rest = read_file(path).split(b"\n")
    except FileNotFoundError:
        return Log([], 0)
    except OSError:
        return Log([], 1)
    torn = parse_event(rest)
    # A kill leaves the start of a line. A whole event and one byte more is a line whose line break is damaged.
    broken = torn is None and parse_event(rest[:-1]) is not None
    found = [parse_event(line) for line in lines]
    whole = [event for event in (*found, torn) if event is not None]
    unsealed = sum(event is not None and not is_sealed_line(line) for event, line in zip(found, lines, strict=True))
    return Log(whole, found.count(None) + broken, unsealed)


def read_since(path: Path, offset: int, most: int = -1) -> tuple[list[LogEvent], int]:
    """Return the whole events after `offset` bytes of a growing log, and the offset from which to read on.

    A missing file is an empty log, and a line without its line break is left for the next call. At most `most` bytes
    are read, if it is not negative; a longer line is skipped.
    """
    try:
        with open_regular(path) as log:
            log.seek(offset)
            read = log.read(most)
    except OSError:
        return [], offset
    lines, separator, rest = read.rpartition(b"\n")
    if not separator and len(rest) == most:
        return [], offset + most
    found = [parse_event(line) for line in lines.split(b"\n")] if separator else []
    return [event for event in found if event is not None], offset + len(lines) + len(separator)


def parse_event(line: bytes) -> LogEvent | None:
    """Parse a line as an event; None if it is not one, or lacks a required field of its kind."""
    try:
        event = parse_json(open_line(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    try:
        found = event_of(event)
        check_possible(found)
    except ValueError:
        return None
    return found
