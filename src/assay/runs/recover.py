"""What became of a run that could not say so itself, from its process and from the events that it left.

A run that says RUNNING is believed only while its process lives. What a dead one had done stands in its events: steps,
tokens, losses, blocks, evidence. What only its memory held is gone, and stays None.
"""

from assay.config.home import Home
from assay.errors import StorageError, UsageError
from assay.runs import history
from assay.runs.alive import is_running
from assay.runs.folder import RunFolder, RunSpec
from assay.runs.lookup import run_folders
from assay.runs.record import Block, Quartiles, RunResult, Status
from assay.runs.store import Store
from assay.step.evidence import Evidence


def begun(spec: RunSpec) -> RunResult:
    """The result of a run of which nothing is known but what was asked for."""
    return RunResult(
        run=spec.id,
        status=Status.RUNNING,
        created=spec.created,
        identity=spec.identity,
        config=spec.config,
        predicted=spec.predicted,
    )


def compose(folder: RunFolder, status: Status, reason: str | None) -> RunResult:
    """A result out of a run's events. Raises `UsageError` when `run.json` cannot be read."""
    spec, events = folder.spec(), folder.events()
    steps, evaluations = history.steps(events), history.evaluations(events)
    timed = history.steps(history.of_last_mesh(events))
    steady = [step for step in timed if step.get("phase") == "steady"]
    quartiles = Quartiles.of([step["seconds"] for step in steady])
    last = evaluations[-1] if evaluations else {}
    facts = {
        "status": status,
        "reason": reason,
        "steps": len(steps),
        "tokens": sum(step["tokens"] for step in steps),
        "train_loss": steps[-1]["loss"] if steps else None,
        "val_loss": last.get("loss"),
        "val_perplexity": last.get("perplexity"),
        "val_bits_per_byte": last.get("bits_per_byte"),
        "step_seconds": quartiles,
        "data_wait_share": history.data_wait_share(steady),
        "tokens_per_second": spec.config.tokens_per_step / quartiles.median if quartiles else None,
        "first_step_seconds": next((step["seconds"] for step in steps if step.get("phase") == "first_step"), None),
        "evidence": tuple(
            Evidence(optimization=event["optimization"], observed=event["observed"], verdict=event["verdict"])
            for event in history.of_last_process(events, "evidence")
        ),
        "blocks": tuple(Block.of(event) for event in history.of_last_process(events, "block")),
    }
    return begun(spec).model_copy(update=facts)


def settle(folder: RunFolder) -> RunResult:
    """What is true of a run now; a dead one that left no result is recorded as killed.

    Raises `UsageError` when `run.json` cannot be read, `StorageError` when the disk refuses.
    """
    # Looked at before the result: a process that is gone has written its result, or never will.
    running = is_running(folder)
    try:
        result = folder.result()
    except UsageError as error:
        return compose(folder, Status.FAILED, str(error))
    if result is not None:
        return result
    if running:
        return compose(folder, Status.RUNNING, None)
    result = compose(folder, Status.KILLED, "its process ended without a result, and without the one that watched it")
    folder.write_result(result)
    return result


def reconcile(home: Home, store: Store) -> list[str]:
    """Make the store say what the folders say. Returns a sentence for each run that cannot be read."""
    notes: list[str] = []
    known = store.stamps()
    folders = list(run_folders(home))
    for folder in folders:
        status, stamp = known.get(folder.id, ("", -1))
        if stamp == folder.stamp() and status != Status.RUNNING:
            continue
        try:
            result = settle(folder)
            store.ingest(result, folder.stamp())
        except (UsageError, StorageError) as error:
            notes.append(str(error))
    for gone in known.keys() - {folder.id for folder in folders}:
        store.remove(gone)
    return notes
