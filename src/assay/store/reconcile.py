"""The result of a run that could not write it, composed from its process and its events.

A run with status RUNNING is believed only while its process is alive. The events of a dead run give its steps, tokens,
losses, blocks and evidence. Facts that only its memory held are lost, and stay None.
"""

from contextlib import suppress

from assay.errors import StorageError, UsageError
from assay.records.evidence import Evidence
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.timing import Quartiles
from assay.store import history
from assay.store.liveness import is_running
from assay.store.run_folder import RunFolder, RunSpec


def begun(spec: RunSpec) -> RunResult:
    """The result of a run of which only the configuration and the prediction are known."""
    return RunResult(
        run=spec.id,
        status=Status.RUNNING,
        created=spec.created,
        identity=spec.identity,
        preset=spec.preset,
        config=spec.config,
        predicted=spec.predicted,
    )


def compose(folder: RunFolder, status: Status, reason: str | None) -> RunResult:
    """Compose a result from a run's events. Raises `UsageError` if `run.json` cannot be read."""
    spec, log = folder.spec(), folder.log()
    events = log.events
    steps, evaluations = history.steps(events), history.evaluations(events)
    timed = history.steps(history.of_last_mesh(events))
    steady = [step for step in timed if step.get("phase") == "steady"]
    quartiles = Quartiles.of([step["seconds"] for step in steady])
    last = evaluations[-1] if evaluations else {}
    proven = any(event["verdict"] for event in history.of_last_process(events, "evidence"))
    facts = {
        **_with_damage(status, reason, log.damaged),
        "steps": steps[-1]["step"] + 1 if steps else 0,
        "tokens": sum(step["tokens"] for step in steps),
        "train_loss": steps[-1]["loss"] if steps else None,
        "val_loss": last.get("loss"),
        "val_perplexity": last.get("perplexity"),
        "val_bits_per_byte": last.get("bits_per_byte"),
        "val_targets": last.get("targets"),
        "val_split_targets": last.get("split_targets"),
        "val_standard_error": last.get("standard_error"),
        "step_seconds": quartiles,
        "data_wait_share": history.data_wait_share(steady),
        "tokens_per_second": spec.config.tokens_per_step / quartiles.median if quartiles else None,
        "first_step_seconds": next((step["seconds"] for step in steps if step.get("phase") == "first_step"), None),
        "evidence": tuple(
            Evidence(optimization=event["optimization"], observed=event["observed"], verdict=event["verdict"])
            for event in history.of_last_process(events, "evidence")
        ),
        "values": history.values(events),
        "proven_until": "beginning" if proven and status is not Status.RUNNING else None,
        "blocks": tuple(history.blocks(events)),
    }
    return begun(spec).model_copy(update=facts)


def _with_damage(status: Status, reason: str | None, lines: int) -> dict[str, str | None]:
    """Status and reason of a run, with a remark if lines of its log are damaged."""
    if lines == 0:
        return {"status": status, "reason": reason}
    said = f"{lines} line{'s' if lines > 1 else ''} of events.jsonl cannot be read, so figures may be incomplete"
    over = Status.DAMAGED if status is Status.KILLED else status
    return {"status": over, "reason": f"{reason}; {said}" if reason else said}


def settle(folder: RunFolder) -> RunResult:
    """Return a run's present result; a dead run without a result is recorded as killed.

    Raises `UsageError` if `run.json` cannot be read.
    """
    try:
        result = folder.result()
        if result is None and not is_running(folder):
            # Read again: a process that has ended since then may have written its result.
            result = folder.result() or _killed(folder)
    except UsageError as error:
        return compose(folder, Status.DAMAGED, str(error))
    return result or compose(folder, Status.RUNNING, None)


def _killed(folder: RunFolder) -> RunResult:
    result = compose(folder, Status.KILLED, "its process and its parent ended without a result")
    with suppress(StorageError):  # the runs of a read-only home can still be listed
        folder.write_result(result)
    return result
