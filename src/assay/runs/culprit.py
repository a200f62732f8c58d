"""Whose end explains how a run on several ranks ended, of those that did not end well.

One rank's end brings the others': connections break, the agent asks them to stop, and kills those that do not. So a
reason of its own that a rank has put on record explains the run, the earliest of several. Without any, a rank that died
without a word does. A broken connection, a stop, and a signal of the agent's are consequences, and explain nothing.

A rank's reason lies where torchrun's agent looks for it: in the file that TORCHELASTIC_ERROR_FILE names.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from assay.data.atomic import write_file
from assay.errors import StorageError
from assay.runs.record import Status

_BROKEN = (
    "closed by peer",
    "reset by peer",
    "connection refused",
    "broken pipe",
    "could not meet at",
    "failed to recv",
    "remote process exited",
)
"""What gloo, NCCL and torch's store say, in small letters, when somebody at the other end has gone."""


@dataclass(frozen=True)
class End:
    """How one rank ended."""

    rank: int
    exit_code: int
    """Negative: the signal that killed it."""
    status: Status | None = None
    reason: str | None = None
    """None: it left no word."""
    at: float = 0.0
    """When it said so, in seconds since the epoch."""

    @classmethod
    def of(cls, rank: int, exit_code: int, said: dict[str, Any]) -> Self:
        """Of what torchrun's agent knows: the content of the file, or something else that is none of ours."""
        if "status" not in said:
            return cls(rank, exit_code)
        return cls(rank, exit_code, Status(said["status"]), said["message"]["message"], said["at"])

    @property
    def explains(self) -> bool:
        """Whether it has a reason that is no consequence of another's end."""
        if self.reason is None or self.status is Status.INTERRUPTED:
            return False
        return not any(words in self.reason.lower() for words in _BROKEN)


def put_on_record(status: Status, reason: str) -> None:
    """Say why this rank ended, where a launcher has named a place for it; a disk that refuses is passed over."""
    place, now = os.environ.get("TORCHELASTIC_ERROR_FILE"), time.time()
    if place:
        said = {"message": {"message": reason, "extraInfo": {"timestamp": int(now)}}, "status": status, "at": now}
        with suppress(StorageError):
            write_file(Path(place), json.dumps(said).encode())


def culprit(ends: Sequence[End]) -> End | None:
    """The end that explains the others, which are in the order in which they were found; None where none does."""
    own = [end for end in ends if end.explains]
    if own:
        first = min(own, key=lambda end: end.at)
        return next((end for end in own if end.rank == 0 and _agree(end, first)), first)
    wordless = [
        end
        for number, end in enumerate(ends)
        # The agent sends this signal to all that are left once it has found the first.
        if end.reason is None and (number == 0 or end.exit_code != -signal.SIGTERM)
    ]
    return min(wordless, key=lambda end: end.exit_code >= 0, default=None)


def _agree(one: End, other: End) -> bool:
    """Whether two ranks have found the same: then it does not matter which was first, and the first rank speaks."""
    return one.reason == other.reason or one.status is other.status is not Status.FAILED
