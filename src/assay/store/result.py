"""Figures of a run, from its own process or from its event log, and the record that is built from them.

`result_of` is the only builder of a `RunResult`. A process that measures a run knows its figures, and adds the facts
that only its memory has. For a process that ended without a result the same figures come from its events.

A run with status RUNNING is believed only while its process is alive. The events of a dead run give its steps, tokens,
losses, blocks and evidence. Facts that only its memory held are lost, and stay None.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite, sqrt
from statistics import fmean
from typing import Any, Self

from assay.errors import StorageError, UsageError
from assay.records.events import EvaluationEvent, LogEvent
from assay.records.run import Environment, Loss, Proof, Provenance, RunResult, Speed
from assay.records.status import Status
from assay.records.timing import Quartiles
from assay.store import history
from assay.store.processes import is_here, is_running
from assay.store.run_folder import RunFolder, RunSpec

LEAST_STEPS = 10
"""Least number of losses that have a spread."""

_UNSEEN = "its process and its parent ended without a result"


@dataclass
class RunFigures:
    """Figures of a run so far. Totals are over all its processes; times are those of its present mesh."""

    steps: int = 0
    tokens: int = 0
    loss: Loss = field(default_factory=Loss)
    speed: Speed = field(default_factory=Speed)
    proof: Proof = field(default_factory=Proof)
    notes: Sequence[str] = ()

    @classmethod
    def of_events(cls, events: Sequence[LogEvent]) -> Self:
        """Return the figures that an event log gives."""
        steps, evaluations = history.steps(events), history.evaluations(events)
        steady = [step for step in history.steps(history.of_last_mesh(events)) if step.phase == "steady"]
        pace = Quartiles.of([step.seconds for step in steady])
        return cls(
            steps=steps[-1].step + 1 if steps else 0,
            tokens=sum(step.tokens for step in steps),
            loss=Loss(
                train_loss=steps[-1].loss if steps else None,
                loss_spread=loss_spread([step.loss for step in steps]),
                skipped_steps=sum(step.skipped for step in steps),
                routers=tuple(history.routers(events)),
                **evaluation_figures(evaluations[-1] if evaluations else None),
            ),
            speed=Speed(
                first_step_seconds=next((step.seconds for step in steps if step.phase == "first_step"), None),
                data_wait_share=history.data_wait_share(steady),
                blocks=tuple(history.blocks(events)),
                **steady_speed(pace, history.step_tokens(steady), history.split_tokens(events)),
            ),
            proof=Proof(evidence=tuple(history.evidence(events)), values=history.values(events)),
            notes=history.notes(events),
        )


def steady_speed(seconds: Quartiles | None, tokens: int | None, split_tokens: int | None) -> dict[str, Any]:
    """Return the figures of steady steps, from their mean tokens and those of the training text."""
    speed = None if seconds is None or tokens is None else tokens / seconds.median
    epoch = None if speed is None or split_tokens is None else split_tokens / speed
    return {"step_seconds": seconds, "tokens_per_second": speed, "epoch_seconds": epoch}


def evaluation_figures(seen: EvaluationEvent | None) -> dict[str, Any]:
    """Return the figures of the last evaluation by their names in a record; none without one."""
    return {} if seen is None else {f"val_{name}": getattr(seen, name) for name in _SEEN}


def result_of(
    spec: RunSpec,
    status: Status,
    reason: str | None,
    figures: RunFigures,
    environment: Environment | None = None,
    **facts: Any,
) -> RunResult:
    """Build the record of a run; `facts` are further fields of it, such as `memory`."""
    return RunResult(
        run=spec.id,
        status=status,
        reason=reason,
        provenance=Provenance(
            created=spec.created,
            identity=spec.identity,
            preset=spec.preset,
            branch=spec.branch,
            environment=environment,
        ),
        config=spec.config,
        predicted=spec.predicted,
        steps=figures.steps,
        tokens=figures.tokens,
        loss=figures.loss,
        speed=figures.speed,
        proof=figures.proof,
        notes=tuple(figures.notes),
        **facts,
    )


def ended_unseen(result: RunResult) -> bool:
    """True if a reader found the run dead. Its parent, if it lives, knows a better reason."""
    return (result.reason or "").startswith(_UNSEEN)


def begun_result(spec: RunSpec) -> RunResult:
    """The result of a run of which only the configuration and the prediction are known."""
    return result_of(spec, Status.RUNNING, None, RunFigures())


def compose(folder: RunFolder, status: Status, reason: str | None) -> RunResult:
    """Compose a result from a run's events. Raises `UsageError` if `run.json` cannot be read."""
    spec, log = folder.spec(), folder.log()
    reason = "; ".join(filter(None, (reason, folder.doubt(folder.spec_file), _unsealed_lines(log.unsealed)))) or None
    figures = RunFigures.of_events(log.events)
    if status is not Status.RUNNING and any(one.verdict for one in figures.proof.evidence):
        figures.proof = figures.proof.model_copy(update={"proven_until": "beginning"})
    return result_of(spec, *_with_damage(status, reason, log.damaged), figures)


def _unsealed_lines(count: int) -> str:
    """Return the clause on lines of a log without a checksum; empty if all have one."""
    few = "1 line of events.jsonl has" if count == 1 else f"{count} lines of events.jsonl have"
    return f"not sealed: {few} no checksum, so damage to figures cannot be seen" if count else ""


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


_SEEN = ("loss", "perplexity", "bits_per_byte", "targets", "split_targets", "standard_error")
_LOGGED = (
    *("steps", "tokens", "skipped_steps", "train_loss", "blocks", "evidence", "values"),
    *(f"val_{name}" for name in _SEEN),
)
"""Figures that a process tells its log as it finds them, so both files of a finished run have them."""


def contradiction(folder: RunFolder) -> str:
    """Return a sentence if the result of a finished run has other figures than its log; empty if it has the same.

    The process of any other run may have ended between a step and its line. A line that a kill has cut off was written
    again by a resume. A figure that a result of an earlier version lacks is not compared. Raises `UsageError` if the
    result cannot be read.
    """
    result, log = folder.result(), folder.log()
    if result is None or not result.status.finished:
        return ""
    logged = result_of(folder.spec(), result.status, None, RunFigures.of_events(log.events))
    for name in _LOGGED:
        found, told = getattr(result, name), getattr(logged, name)
        if found not in (None, ()) and found != told:
            unread = " (some lines cannot be read)" if log.damaged else ""
            return f"its result.json and its events.jsonl{unread} differ in {name}{_both(found, told)}"
    return ""


def _both(found: Any, told: Any) -> str:
    """Return two figures in brackets if they are numbers."""
    numbers = isinstance(found, int | float) and isinstance(told, int | float | None)
    return f" ({found} and {'none' if told is None else told})" if numbers else ""


def loss_spread(losses: Sequence[float | None]) -> float | None:
    """Return the standard deviation, in nats per token, of the last losses about their least-squares line.

    It tells how jagged the end of a training curve is. A loss still falls there, so its plain deviation would measure
    the slope as well. `losses` has the training loss of each step. The last tenth of them counts, and at least
    `LEAST_STEPS`. The line takes two degrees of freedom. The result is None for fewer losses, and if one of the last
    was not finite.
    """
    last = losses[-max(LEAST_STEPS, len(losses) // 10) :]
    finite = [loss for loss in last if loss is not None and isfinite(loss)]
    if len(finite) < max(LEAST_STEPS, len(last)):
        return None
    middle, mean = (len(finite) - 1) / 2, fmean(finite)
    slope = fmean((step - middle) * (loss - mean) for step, loss in enumerate(finite))
    slope /= fmean((step - middle) ** 2 for step in range(len(finite)))
    residuals = [loss - mean - slope * (step - middle) for step, loss in enumerate(finite)]
    return sqrt(sum(one * one for one in residuals) / (len(finite) - 2))
