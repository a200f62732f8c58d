"""The valid events of a run: a resume invalidates those after its checkpoint.

A resumed run continues its event log from its newest checkpoint. Steps of the earlier process after that checkpoint are
trained anew. They no longer count, even if the later process has not reached them. Timed blocks and evidence belong to
one process, and only those of the last process are valid. Times belong to one mesh.
"""

from collections.abc import Iterable
from contextlib import suppress

from pydantic import ValidationError

from assay.records.evidence import ValueProof
from assay.records.timing import Block
from assay.store.event_log import Event


def steps(events: Iterable[Event]) -> list[Event]:
    """The valid step events in order, one for each step index."""
    standing: dict[int, Event] = {}
    for event in events:
        if event["event"] == "start":
            standing = {index: step for index, step in standing.items() if index < event.get("resumed_at", 0)}
        elif event["event"] == "step":
            standing[event["step"]] = event
    return [standing[index] for index in sorted(standing)]


def evaluations(events: Iterable[Event]) -> list[Event]:
    """The valid evaluations in order, one for each number of completed steps."""
    standing: dict[int, Event] = {}
    for event in events:
        if event["event"] == "start":
            standing = {done: seen for done, seen in standing.items() if done <= event.get("resumed_at", 0)}
        elif event["event"] == "evaluation":
            standing[event["step"]] = event
    return [standing[done] for done in sorted(standing)]


def data_wait_share(timed: Iterable[Event]) -> float | None:
    """Share of these steps' seconds in which the host waited for data; None if no step reports it."""
    told = [step for step in timed if "data_seconds" in step]
    seconds = sum(step["seconds"] for step in told)
    return sum(step["data_seconds"] for step in told) / seconds if seconds else None


def of_last_process(events: Iterable[Event], kind: str) -> list[Event]:
    """Events of one kind since the last start."""
    since: list[Event] = []
    for event in events:
        if event["event"] == "start":
            since = []
        elif event["event"] == kind:
            since.append(event)
    return since


def blocks(events: Iterable[Event]) -> list[Block]:
    """Timed blocks of the last process; blocks whose fields this version cannot read are left out."""
    found: list[Block] = []
    for event in of_last_process(events, "block"):
        with suppress(ValidationError):
            found.append(Block.of(event))
    return found


def values(events: Iterable[Event]) -> ValueProof | None:
    """The last process's value proof; None if there is none, or this version cannot read its fields."""
    for event in of_last_process(events, "values"):
        with suppress(ValidationError):
            return ValueProof.model_validate(event.get("proof"))
    return None


def of_last_mesh(events: Iterable[Event]) -> list[Event]:
    """Events since the run has used its present mesh."""
    since: list[Event] = []
    mesh = None
    for event in events:
        if event["event"] == "start" and event.get("mesh") != mesh:
            since, mesh = [], event.get("mesh")
        since.append(event)
    return since
