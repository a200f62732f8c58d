"""The valid events of a run: a resume invalidates those after its checkpoint.

A resumed run continues its event log from its newest checkpoint. Steps of the earlier process after that checkpoint are
trained anew. They no longer count, even if the later process has not reached them. Timed blocks and evidence belong to
one process, and only those of the last process are valid. Times belong to one mesh.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import mean
from typing import TypeVar

from pydantic import ValidationError

from assay.records.events import (
    BlockEvent,
    EvaluationEvent,
    EvidenceEvent,
    LogEvent,
    NoteEvent,
    RouterEvent,
    RouterLayer,
    StartEvent,
    StepEvent,
    ValuesEvent,
)
from assay.records.evidence import Evidence, ValueProof
from assay.records.timing import Block

_Kind = TypeVar("_Kind", bound=LogEvent)


def steps(events: Iterable[LogEvent]) -> list[StepEvent]:
    """The valid steps in order, one for each step index."""
    standing: dict[int, StepEvent] = {}
    for event in events:
        if isinstance(event, StartEvent):
            standing = {index: step for index, step in standing.items() if index < event.resumed_at}
        elif isinstance(event, StepEvent):
            standing[event.step] = event
    return [standing[index] for index in sorted(standing)]


def evaluations(events: Iterable[LogEvent]) -> list[EvaluationEvent]:
    """The valid evaluations in order, one for each number of completed steps."""
    standing: dict[int, EvaluationEvent] = {}
    for event in events:
        if isinstance(event, StartEvent):
            standing = {done: seen for done, seen in standing.items() if done <= event.resumed_at}
        elif isinstance(event, EvaluationEvent):
            standing[event.step] = event
    return [standing[done] for done in sorted(standing)]


def step_tokens(steady: Sequence[StepEvent]) -> int | None:
    """Mean tokens of steady steps, of which a loss of a user's own may count some; None without steps."""
    return round(mean(step.tokens for step in steady)) if steady else None


def data_wait_share(timed: Sequence[StepEvent]) -> float | None:
    """Share of these steps' seconds in which the host waited for data; None if no step reports it."""
    told = [(step.data_seconds, step.seconds) for step in timed if step.data_seconds is not None]
    seconds = sum(spent for _, spent in told)
    return sum(waited for waited, _ in told) / seconds if seconds else None


def blocks(events: Iterable[LogEvent]) -> list[Block]:
    """Timed blocks of the last process; blocks whose fields this version cannot read are left out."""
    found: list[Block] = []
    for event in _of_last_process(events, BlockEvent):
        with suppress(ValidationError):
            found.append(event.block())
    return found


def evidence(events: Iterable[LogEvent]) -> list[Evidence]:
    """The last process's evidence of every optimization."""
    return [one.evidence() for one in _of_last_process(events, EvidenceEvent)]


def routers(events: Iterable[LogEvent]) -> tuple[RouterLayer, ...]:
    """The last process's newest routing statistics by layer; empty if there are none."""
    said = _of_last_process(events, RouterEvent)
    return said[-1].layers if said else ()


def split_tokens(events: Iterable[LogEvent]) -> int | None:
    """Tokens of the training text, as the last process said; None in logs of earlier versions."""
    start = _last_start(events)
    return None if start is None else start.split_tokens


def was_forked(events: Iterable[LogEvent]) -> bool | None:
    """Return True if the last process was forked from a server; None if it did not say."""
    start = _last_start(events)
    return None if start is None else start.forked


def notes(events: Iterable[LogEvent]) -> list[str]:
    """The last process's sentences for the user."""
    return [one.text for one in _of_last_process(events, NoteEvent)]


def values(events: Iterable[LogEvent]) -> ValueProof | None:
    """The last process's value proof; None if there is none, or this version cannot read its fields."""
    for event in reversed(_of_last_process(events, ValuesEvent)):
        with suppress(ValidationError):
            return ValueProof.model_validate(event.proof)
    return None


def unproven_steps(events: Iterable[LogEvent]) -> int:
    """Number of steps that the last process goes on from, of processes that did not show their values to be right."""
    count, began, shown = 0, 0, True
    for event in events:
        if isinstance(event, StartEvent):
            count += 0 if shown else max(0, event.resumed_at - began)
            began, shown = event.resumed_at, False
        elif isinstance(event, ValuesEvent):
            with suppress(ValidationError):
                proof = ValueProof.model_validate(event.proof)
                shown = proof.checked and proof.verdict
    return count


def of_last_mesh(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Events since the run has used its present mesh."""
    since: list[LogEvent] = []
    mesh = None
    for event in events:
        if isinstance(event, StartEvent) and event.mesh != mesh:
            since, mesh = [], event.mesh
        since.append(event)
    return since


def _last_start(events: Iterable[LogEvent]) -> StartEvent | None:
    starts = [event for event in events if isinstance(event, StartEvent)]
    return starts[-1] if starts else None


def _of_last_process(events: Iterable[LogEvent], kind: type[_Kind]) -> list[_Kind]:
    """Events of one kind since the last start."""
    since: list[_Kind] = []
    for event in events:
        if isinstance(event, StartEvent):
            since = []
        elif isinstance(event, kind):
            since.append(event)
    return since
