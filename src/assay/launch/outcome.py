"""The end of a child, determined by its parent from the child's result, or else from its process.

A killed child writes no result. Its exit code then shows a signal, a requested stop or a failure, and the last line of
its log is the reason. Its progress is read from its events.
"""

import signal
from typing import Literal

from assay.errors import UsageError
from assay.platforms import KILL
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.reconcile import compose, ended_unseen
from assay.store.run_folder import RunFolder

Stop = Literal["interrupted", "timed_out"]
"""Reason for which a parent requested its child to end."""


def ending(
    folder: RunFolder, exit_code: int, stop: Stop | None, limit_seconds: float | None, earlier: int = 0
) -> RunResult:
    """Return the child's own result, or compose one from its exit code, log and events.

    `earlier` is the stamp of the result that existed before the child began, and is not the child's own. Raises
    `UsageError` if `run.json` is unreadable.
    """
    too_long = f"stopped after {limit_seconds or 0:g} s, its time limit"
    try:
        own = folder.result() if folder.stamp() != earlier else None
    except UsageError as error:
        return compose(folder, Status.FAILED, str(error))
    if own is not None and ended_unseen(own):
        own = None  # it is a reader's, who found the child dead before its parent did
    if own is not None and exit_code < 0 and own.status is Status.FAILED and own.config.ranks > 1:
        # Ranks whose launcher has died lose their rendezvous store, and fail because of that.
        return own.model_copy(update={"status": Status.KILLED, "reason": _without_launcher(-exit_code)})
    if own is not None:
        in_time = stop != "timed_out" or own.status is not Status.INTERRUPTED
        return own if in_time else own.model_copy(update={"status": Status.TIMED_OUT, "reason": too_long})
    if stop == "timed_out":
        return compose(folder, Status.TIMED_OUT, too_long)
    if stop == "interrupted":
        return compose(folder, Status.INTERRUPTED, "interrupted before it could save; its last checkpoint is kept")
    if exit_code < 0:
        said = compose(folder, Status.KILLED, _signalled(-exit_code))
        alone = said.config.ranks == 1
        return said if alone else said.model_copy(update={"reason": _without_launcher(-exit_code)})
    words = folder.last_words() or f"{folder.log_file} has no message"
    return compose(folder, Status.FAILED, f"ended with exit code {exit_code} and without a result: {words}")


def _without_launcher(number: int) -> str:
    return f"the launcher of its ranks was {_signalled(number)}, and the ranks could not continue without it"


def _signalled(number: int) -> str:
    if number == KILL:
        return "killed by signal 9, perhaps by the system because memory ran out"
    return f"killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
