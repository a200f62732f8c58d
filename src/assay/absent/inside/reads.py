"""Reads by the host, by line. A line that reads on and on is stopped; one whose value was stated gets it."""

import contextlib
import ctypes
import functools
import json
import os
import re
import struct
import sys
import threading
from typing import Any

from .findings import Findings
from .places import place_now

MOST_READS = 10_000
"""Reads of one line without a step, after which the script is stopped."""
MOST_KNOWN = 4096
"""Most elements of an answer of `isnan` whose values are told to the library."""
STOPPED = 5
"""Exit code of a script that is stopped."""
VALUES = re.compile(
    r"(item|_local_scalar_dense|is_nonzero|equal|allclose|to|_to_copy|copy|cpu|clone|_assert_async)(_|$)|_?linalg_|$"
)
"""Operators, with any overload, whose reads become a Python value or a copy on the host, and no size of a tensor."""


class Reads:
    """Counts reads by line, and writes stated values."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._since_step: dict[tuple[str, int], int] = {}
        self._stated: list[tuple[str, int, str]] = json.loads(os.environ.get("ASSAY_ABSENT_READS", "[]"))
        self._busy = threading.local()

    def stepped(self) -> None:
        """A step has ended: lines may read on."""
        self._since_step.clear()

    def read(self, operator: str, address: int, size: int) -> None:
        """The host has read `size` bytes, which are at `address` now."""
        if getattr(self._busy, "now", False) or os.getpid() != self._findings.process:
            return
        self._busy.now = True
        try:
            self._read(operator, address, size)
        finally:
            self._busy.now = False

    def _read(self, operator: str, address: int, size: int) -> None:
        place = place_now()
        is_size = VALUES.match(operator) is None
        stated = self._value(place)
        if stated is not None:
            _write(address, size, stated)
        key = (place["file"], place["line"], operator, "size" if is_size else "value")
        site = self._findings.sites.setdefault(
            key, {**place, "operator": operator, "kind": key[3], "count": 0, "bytes": 0, "stated": stated is not None}
        )
        site["count"] += 1
        site["bytes"] += size
        line = (place["file"], place["line"])
        self._since_step[line] = self._since_step.get(line, 0) + 1
        if self._since_step[line] >= MOST_READS:
            self._stop(place)

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

    def follow_torch(self) -> None:
        """Let `isnan` and `isinf` answer false, and `any` of their answers too: nothing that was computed is NaN."""
        import torch
        from torch.jit import _builtins

        for name in ("isnan", "isinf", "any", "logical_or"):
            for owner in (torch, torch.Tensor):
                answered = self._false(getattr(owner, name), checked=name in ("any", "logical_or"))
                setattr(owner, name, answered)
                if owner is torch:  # TorchScript knows torch's functions by their identity
                    _builtins._register_builtin(answered, f"aten::{name}")

    def _false(self, function: Any, *, checked: bool) -> Any:
        """The function, with values that are false; if `checked`, only if its arguments are such answers."""
        import torch

        @functools.wraps(function)
        def answered(*given: Any, **named: Any) -> Any:
            found = function(*given, **named)
            if torch.compiler.is_compiling() or not getattr(found, "is_cuda", False) or type(found) is not torch.Tensor:
                return found
            tensors = [one for one in given if isinstance(one, torch.Tensor)]
            if not checked or all(getattr(one, "_absent_false", False) for one in tensors):
                self._say_false(found)
            return found

        return answered

    def _say_false(self, found: Any) -> None:
        import torch

        found._absent_false = True
        # Wrappers of transforms such as vmap have no memory of their own.
        with contextlib.suppress(RuntimeError):
            if found.numel() <= MOST_KNOWN and not torch.cuda.is_current_stream_capturing():
                self._findings.library.set_known(found.data_ptr(), 0, found.numel())


def _write(address: int, size: int, text: str) -> None:
    """Write a stated value: a whole number as an integer, one with a point as a float, a bool as one byte."""
    if text in ("True", "False"):
        ctypes.memset(address, int(text == "True"), size)
        return
    kinds = {1: "b", 2: "e", 4: "f", 8: "d"} if "." in text or "e" in text else {1: "b", 2: "h", 4: "i", 8: "q"}
    if size in kinds:
        value = float(text) if kinds[size] in "efd" else int(text)
        ctypes.memmove(address, struct.pack(f"={kinds[size]}", value), size)
