"""Reads by the host, by line. A line that reads on and on is stopped; one whose value was stated gets it."""

import ctypes
import json
import os
import re
import struct
import sys
import threading
from typing import Any

from .findings import ObserverFindings
from .script_lines import place_now, prints_now

MOST_READS = 10_000
"""Reads of one line without a step, after which the script is stopped."""
STOPPED = 5
"""Exit code of a script that is stopped."""
VALUES = re.compile(
    r"(item|_local_scalar_dense|is_nonzero|equal|allclose|to_(dtype|device|other)|_to_copy|copy|cpu|clone|_assert_async)"
    r"(_|$)|_?linalg_|$"
)
"""Operators, with any overload, whose reads become a Python value or a copy on the host, and no size of a tensor."""


class Reads:
    """Counts reads by line, and writes stated values."""

    def __init__(self, findings: ObserverFindings) -> None:
        self._findings = findings
        self._since_step: dict[tuple[str, int], int] = {}
        self._stated: list[tuple[str, int, str]] = json.loads(os.environ.get("ASSAY_ABSENT_READS", "[]"))
        self._busy = threading.local()
        self.whole = threading.local()
        """`now` is true while a tensor of whole numbers is turned into Python's."""

    def stepped(self) -> None:
        """A step has ended: lines may read on."""
        self._since_step.clear()

    def read(self, operator: str, address: int, size: int, known: bool) -> None:
        """The host has read `size` bytes, which are at `address` now; `known` if they came back as they were sent."""
        if getattr(self._busy, "now", False) or os.getpid() != self._findings.process:
            return
        self._busy.now = True
        try:
            self._read(operator, address, size, known)
        finally:
            self._busy.now = False

    def _read(self, operator: str, address: int, size: int, known: bool) -> None:
        place = place_now()
        stated = self._value(place)
        if stated is not None:
            _write(address, size, stated)
        kind = "sent" if known else self._kind(operator)
        key = (place["file"], place["line"], operator, kind)
        site = self._findings.sites.setdefault(
            key, {**place, "operator": operator, "kind": kind, "count": 0, "bytes": 0, "stated": stated is not None}
        )
        site["count"] += 1
        site["bytes"] += size
        line = (place["file"], place["line"])
        self._since_step[line] = self._since_step.get(line, 0) + 1
        if self._since_step[line] >= MOST_READS:
            self._stop(place)

    def _kind(self, operator: str) -> str:
        """A size of a tensor, a whole number that may become one, or another value."""
        if VALUES.match(operator) is None and not prints_now():
            return "size"
        return "whole" if getattr(self.whole, "now", False) else "value"

    def _value(self, place: dict[str, Any]) -> str | None:
        """The value that the user has stated for a line; its file is given by the end of its path."""
        callers = [f"{place['file']}:{place['line']}", place["caller"] or ""]
        for file, line, value in self._stated:
            if any(one.endswith(f"{os.sep}{file}:{line}") or one == f"{file}:{line}" for one in callers):
                return value
        return None

    def _stop(self, place: dict[str, Any]) -> None:
        self._findings.ended = {"how": "endless", "place": place}
        self._findings.write()
        sys.stdout.flush()
        sys.stderr.flush()
        self._findings.library.let_go()
        os._exit(STOPPED)

    def unknown(self, library: str, function: str, runs: bool) -> None:
        """A library was asked for something that is not known; with `runs`, the script goes on without it."""
        place = place_now()
        key = (library, place["file"], place["line"])
        one = self._findings.unknown.setdefault(key, {"library": library, "function": function, "runs": runs, **place})
        one["runs"] = one["runs"] and runs


def _write(address: int, size: int, text: str) -> None:
    """Write a stated value: a whole number as an integer, one with a point as a float, a bool as one byte."""
    if text in ("True", "False"):
        ctypes.memset(address, int(text == "True"), size)
        return
    kinds = {1: "b", 2: "e", 4: "f", 8: "d"} if "." in text or "e" in text else {1: "b", 2: "h", 4: "i", 8: "q"}
    if size in kinds:
        value = float(text) if kinds[size] in "efd" else int(text)
        ctypes.memmove(address, struct.pack(f"={kinds[size]}", value), size)
