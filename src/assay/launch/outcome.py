"""The end of a child, determined by its parent from the child's result, or else from its process.

A killed child writes no result. Its exit code then shows a signal, a requested stop or a failure, and the last line of
its log is the reason. Its progress is read from its events.

Signal 9 is the system's if it counted a kill for want of memory in the meantime. Then the run is out of memory, which
is a result, and is not repeated as a fault of the machine would be.
"""

import signal
from typing import Literal

from assay.errors import ProcessKilled, UsageError
from assay.platforms import KILL
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.result import compose, ended_unseen
from assay.store.run_folder import RunFolder

Stop = Literal["interrupted", "timed_out"]
"""Reason for which a parent requested its child to end."""

_UNRECORDED = "interrupted before it recorded its result; its last checkpoint is kept"
_RAN_OUT = "the system counted a process that it killed because memory ran out"


def ending(
    folder: RunFolder,
    exit_code: int,
    stop: Stop | None,
    limit_seconds: float | None,
    earlier: int = 0,
    *,
    ran_out: bool = False,
) -> RunResult:
    """Return the child's own result, or compose one from its exit code, log and events.

    `earlier` is the stamp of the result that existed before the child began, and is not the child's own. `ran_out` is
    true if the system killed a process of the child's control group while it ran, because memory ran out. Raises
    `UsageError` if `run.json` is unreadable.
    """
    killed = Status.OUT_OF_MEMORY if ran_out and exit_code == -KILL else Status.KILLED
    too_long = f"stopped after {limit_seconds or 0:g} s, its time limit"
    try:
        own = folder.result() if folder.stamp() != earlier else None
    except UsageError as error:
        return compose(folder, Status.FAILED, str(error))
    if own is not None and ended_unseen(own):
        own = None  # it is a reader's, who found the child dead before its parent did
    if own is not None and exit_code < 0 and own.status is Status.FAILED and own.config.ranks > 1:
        # Ranks whose launcher has died lose their rendezvous store, and fail because of that.
        return own.model_copy(update={"status": killed, "reason": _without_launcher(-exit_code, ran_out)})
    if own is not None and own.status is Status.KILLED and ran_out:  # one of its ranks was, as their launcher saw
        return own.model_copy(update={"status": Status.OUT_OF_MEMORY, "reason": f"{own.reason}; {_RAN_OUT}"})
    if own is not None:
        in_time = stop != "timed_out" or own.status is not Status.INTERRUPTED
        return own if in_time else own.model_copy(update={"status": Status.TIMED_OUT, "reason": too_long})
    if stop == "timed_out":
        return compose(folder, Status.TIMED_OUT, too_long)
    if stop == "interrupted":
        return compose(folder, Status.INTERRUPTED, _UNRECORDED)
    if exit_code < 0:
        reason = _signalled if folder.spec().config.ranks == 1 else _without_launcher
        return compose(folder, killed, reason(-exit_code, ran_out))
    words = folder.last_words() or f"{folder.log_file} has no message"
    return compose(folder, Status.FAILED, f"ended with exit code {exit_code} and without a result: {words}")


def _without_launcher(number: int, ran_out: bool) -> str:
    return f"the launcher of its ranks was {_signalled(number, ran_out)}, and the ranks could not continue without it"


def check_alive(exit_code: int, what: str) -> None:
    """Raise `ProcessKilled` if the exit code of a process says that a signal ended it; `what` names the process."""
    if exit_code < 0:
        raise ProcessKilled(f"{what} was {_signalled(-exit_code, False)}")


def _signalled(number: int, ran_out: bool) -> str:
    if number == KILL and ran_out:
        return f"killed by signal 9; {_RAN_OUT}"
    if number == KILL:
        return "killed by signal 9, perhaps by the system because memory ran out"
    return f"killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
