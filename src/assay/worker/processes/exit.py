"""Exit of a process whose work is done: run its exit handlers, flush its streams and skip the interpreter's teardown.

Teardown of an interpreter with torch takes about a second, and frees memory that the system frees anyway. Torch's
finalizers take 30 ms to unregister a thousand operators, which nobody calls any more, so they are left out. Gloo's
threads outlive their process groups, and have been seen to abort the process of a finished run during teardown. A
failed process is torn down normally. The other ranks fail after it, and the second of delay lets the agent see which
rank failed first.
"""

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import NoReturn

_OPERATORS = "torch.library"
"""Module of the finalizers that unregister operators."""


def leave(code: int) -> NoReturn:
    """End this process with an exit code, without teardown if it is 0."""
    if code:
        sys.exit(code)
    _keep_operators()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe without a reader, or a closed stream
            stream.flush()
    os._exit(0)


def _keep_operators() -> None:
    """Let torch's operators stay registered at the exit."""
    for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        alive = one.peek()
        if alive is not None and getattr(alive[1], "__module__", "") == _OPERATORS:
            one.atexit = False
