"""The result of a run that could not write it, composed from its process and its events.

A run with status RUNNING is believed only while its process is alive. The events of a dead run give its steps, tokens,
losses, blocks and evidence. Facts that only its memory held are lost, and stay None.
"""

from contextlib import suppress

from assay.errors import StorageError, UsageError
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.figures import RunFigures, result_of
from assay.store.liveness import is_here, is_running
from assay.store.run_folder import RunFolder, RunSpec

_UNSEEN = "its process and its parent ended without a result"


def ended_unseen(result: RunResult) -> bool:
    """True if a reader found the run dead. Its parent, if it lives, knows a better reason."""
    return (result.reason or "").startswith(_UNSEEN)


def begun(spec: RunSpec) -> RunResult:
    """The result of a run of which only the configuration and the prediction are known."""
    return result_of(spec, Status.RUNNING, None, RunFigures())


def compose(folder: RunFolder, status: Status, reason: str | None) -> RunResult:
    """Compose a result from a run's events. Raises `UsageError` if `run.json` cannot be read."""
    spec, log = folder.spec(), folder.log()
    figures = RunFigures.of_events(log.events)
    proven = status is not Status.RUNNING and any(one.verdict for one in figures.evidence)
    return result_of(
        spec,
        *_with_damage(status, reason, log.damaged),
        figures,
        proven_until="beginning" if proven else None,
    )


def _with_damage(status: Status, reason: str | None, lines: int) -> tuple[Status, str | None]:
    """Status and reason of a run, with a remark if lines of its log are damaged."""
    if lines == 0:
        return status, reason
    said = f"{lines} line{'s' if lines > 1 else ''} of events.jsonl cannot be read, so figures may be incomplete"
    over = Status.DAMAGED if status is Status.KILLED else status
    return over, f"{reason}; {said}" if reason else said


def settle(folder: RunFolder, *, recorded: bool = True) -> RunResult:
    """Return a run's present result; a dead run without a result is recorded as killed, unless `recorded` is false.

    Raises `UsageError` if `run.json` cannot be read.
    """
    try:
        result = folder.result()
        if folder.stands and not is_running(folder):
            return _standing(folder, recorded)
        if result is None and not is_running(folder):
            # Read again: a process that has ended since then may have written its result.
            result = folder.result() or _killed(folder, recorded)
    except UsageError as error:
        return compose(folder, Status.DAMAGED, str(error))
    return result or compose(folder, Status.RUNNING, None)


def _standing(folder: RunFolder, recorded: bool) -> RunResult:
    """Return the result of before a resume that trained no step, and put it back if `recorded`."""
    earlier = folder.standing()
    if recorded:
        with suppress(StorageError):  # the records of a read-only home stay where they are
            folder.restore()
    return earlier


def _killed(folder: RunFolder, recorded: bool) -> RunResult:
    result = compose(folder, Status.KILLED, _UNSEEN)
    if recorded and _seen_dead(folder):
        with suppress(StorageError):  # the runs of a read-only home can still be listed
            folder.write_result(result)
    return result


def _seen_dead(folder: RunFolder) -> bool:
    """False if the process was on another host: a clock that is set makes it look silent, so nothing is written."""
    with suppress(UsageError):
        known = folder.process()
        return known is None or is_here(known)
    return True
