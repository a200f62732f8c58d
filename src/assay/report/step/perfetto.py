"""An anatomy's operators as a trace for ui.perfetto.dev and chrome://tracing: trace events of Chrome in JSON.

Slices nest by construction: a phase holds the modules whose operators follow one another, and these hold the operators.
A slice of a module begins with its first operator and ends with its last, so its gaps are the host's own time. The
bytes alive are a counter. Format: "Trace Event Format", phases X (a slice), C (a counter) and M (a name); times are in
microseconds.
"""

import gzip
import json
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from assay.files import check_target, write_file
from assay.records.anatomy import BETWEEN, UPDATE, Anatomy, Operator

Event = dict[str, Any]

_PLACE = {"pid": 1, "tid": 1}
_LEVEL = re.compile(r"[^.]+(?:\.\d+)?")
"""One level of a module's name; a list of modules and the number in it are one."""


def writable(path: Path) -> None:
    """Raise `UsageError` if the trace's format or folder is impossible, before anything is measured for it."""
    check_target(path, "trace", (".json", ".json.gz"))


def write(anatomy: Anatomy, path: Path) -> None:
    """Write the trace, compressed if the name ends in .gz. Raises `StorageError`."""
    content = json.dumps(trace(anatomy), separators=(",", ":")).encode()
    write_file(path, gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)


def trace(anatomy: Anatomy) -> Event:
    """Return the trace of an anatomy that has operators."""
    names = [("process_name", anatomy.title or "one step"), ("thread_name", "operators")]
    events = [{"ph": "M", "name": kind, "args": {"name": name}, **_PLACE} for kind, name in names]
    events += _slices(anatomy.operators)
    events += [_counter(one, one.alive_bytes) for one in anatomy.operators if one.alive_bytes is not None]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "step_seconds": anatomy.step_seconds,
            "watched_seconds": anatomy.watched_seconds,
            "caveat": "times are those of a watched step, in which each operator is timed on its own",
        },
    }


def _slices(operators: tuple[Operator, ...]) -> Iterator[Event]:
    """Yield the slices of operators, and of the phases and modules around them."""
    around: list[tuple[str, float]] = []
    """Names of the open slices, and when they began."""
    end = 0.0
    for one in operators:
        path = _path(one)
        shared = len(list(takewhile(lambda pair: pair[0][0] == pair[1], zip(around, path, strict=False))))
        yield from _closed(around, shared, end)
        around += [(name, one.begin_seconds) for name in path[shared:]]
        end = one.begin_seconds + one.seconds
        facts = {"module": one.module, "class": one.operation_class, "FLOPs": one.flops, "bytes": one.bytes}
        yield {**_slice(one.name, one.operation_class, one.begin_seconds, end), "args": facts}
    yield from _closed(around, 0, end)


def _closed(around: list[tuple[str, float]], open_still: int, end: float) -> Iterator[Event]:
    """Close the innermost slices, and yield them, until so many are open."""
    while len(around) > open_still:
        name, begin = around.pop()
        yield _slice(name, "module" if around else "phase", begin, end)


def _path(one: Operator) -> list[str]:
    """Return the names of the slices around an operator, the outermost first."""
    return [one.phase, *([] if one.module in (BETWEEN, UPDATE) else _LEVEL.findall(one.module))]


def _slice(name: str, category: str, begin: float, end: float) -> Event:
    first, last = _microseconds(begin), _microseconds(end)
    return {"ph": "X", "name": name, "cat": category, "ts": first, "dur": round(last - first, 3), **_PLACE}


def _counter(one: Operator, alive_bytes: int) -> Event:
    """Return the bytes alive at the end of an operator."""
    end = _microseconds(one.begin_seconds + one.seconds)
    return {"ph": "C", "name": "memory", "ts": end, "args": {"bytes alive": alive_bytes}, **_PLACE}


def _microseconds(seconds: float) -> float:
    """Return microseconds with three decimals, so that slices that touch do not overlap by rounding."""
    return round(1e6 * seconds, 3)
