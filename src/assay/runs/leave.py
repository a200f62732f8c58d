"""The end of a process whose work is done: its handlers run, its streams are flushed, the rest is left to the system.

Taking apart an interpreter with torch in it lasts about a second, and frees what the system frees anyway. And threads
of gloo's, which outlive the groups that they worked for, have been seen to abort a process there whose run was done.
One that failed takes that second: the others fail after it, and who watches them must see which was the first.
"""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process with an exit code, at once where that is 0."""
    if code:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe whose reader has gone, or a stream that was closed
            stream.flush()
    os._exit(0)
