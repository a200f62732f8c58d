"""Helper processes that end with their parent: their standard input is a pipe that closes when it ends in any way."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def helper(command: Sequence[str], errors: int = subprocess.PIPE) -> "Iterator[subprocess.Popen[str]]":
    """Start a process, and close its standard input at the end of the block, which ends it.

    `errors` is where its standard error goes, as `subprocess.Popen` takes it.
    """
    listening, held = os.pipe()
    try:
        with subprocess.Popen(command, stdin=listening, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            os.close(listening)
            listening = -1
            try:
                yield process
            finally:
                os.close(held)
                held = -1
    finally:
        for end in (listening, held):
            if end >= 0:
                os.close(end)
