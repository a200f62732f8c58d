"""Ends of processes: an exit without teardown, and the failed rank whose end explains a run on several ranks.

A process whose work is done runs its exit handlers, flushes its streams and skips the interpreter's teardown. Teardown
of an interpreter with torch takes about a second, and frees memory that the system frees anyway. Torch's finalizers
take 30 ms to unregister a thousand operators, which nobody calls any more, so they are left out. Gloo's threads outlive
their process groups, and have been seen to abort the process of a finished run during teardown. A failed process is
torn down normally. The other ranks fail after it, and the second of delay lets the agent see which rank failed first.

One rank's end causes the others': connections break, and the agent signals the other ranks and kills those that do not
end. So the earliest reason that a rank recorded itself explains the run. If no rank has recorded one, a rank that died
without a reason explains it. A broken connection, a requested stop and a signal from the agent are consequences, and
explain nothing.

A rank writes its reason where torchrun's agent reads it: in the file that TORCHELASTIC_ERROR_FILE names.
"""

import atexit
import json
import os
import signal
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from assay.errors import StorageError
from assay.files import write_file
from assay.records.status import Status

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


_BROKEN = (
    "closed by peer",
    "reset by peer",
    "connection refused",
    "broken pipe",
    "could not meet at",
    "failed to recv",
    "remote process exited",
)
"""Lower-case parts of the errors of gloo, NCCL and torch's store when a peer has ended."""


@dataclass(frozen=True)
class End:
    """The end of one rank."""

    rank: int
    exit_code: int
    """Exit code; negative is the number of the signal that killed the rank."""
    status: Status | None = None
    reason: str | None = None
    """Recorded reason, or None if the rank recorded none."""
    at: float = 0.0
    """Time at which the reason was recorded, in seconds since the epoch."""

    @classmethod
    def of(cls, rank: int, exit_code: int, said: dict[str, Any]) -> Self:
        """Make an end from the content of a rank's error file; a file that assay did not write gives no reason."""
        if "status" not in said:
            return cls(rank, exit_code)
        return cls(rank, exit_code, Status(said["status"]), said["message"]["message"], said["at"])

    @property
    def explains(self) -> bool:
        """True if the rank has a reason of its own, and not a consequence of another rank's end."""
        if self.reason is None or self.status is Status.INTERRUPTED:
            return False
        return not any(words in self.reason.lower() for words in _BROKEN)


def put_on_record(status: Status, reason: str) -> None:
    """Write this rank's status and reason to the file that the launcher has named, if any; a disk error is ignored."""
    place, now = os.environ.get("TORCHELASTIC_ERROR_FILE"), time.time()
    if place:
        said = {"message": {"message": reason, "extraInfo": {"timestamp": int(now)}}, "status": status, "at": now}
        with suppress(StorageError):
            write_file(Path(place), json.dumps(said).encode())


def culprit(ends: Sequence[End]) -> End | None:
    """The end that explains the others, or None. `ends` are in the order in which they were found."""
    own = [end for end in ends if end.explains]
    if own:
        first = min(own, key=lambda end: end.at)
        return next((end for end in own if end.rank == 0 and _agree(end, first)), first)
    wordless = [
        end
        for number, end in enumerate(ends)
        # After the first failure the agent sends this signal to all remaining ranks.
        if end.reason is None and (number == 0 or end.exit_code != -signal.SIGTERM)
    ]
    return min(wordless, key=lambda end: end.exit_code >= 0, default=None)


def _agree(one: End, other: End) -> bool:
    """True if two ranks report the same: then their order does not matter, and rank 0's end is preferred."""
    return one.reason == other.reason or one.status is other.status is not Status.FAILED
