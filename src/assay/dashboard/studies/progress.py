"""The course of one study as its log tells it: the state of every cell.

    waiting → starting → a phase or a block of its work → the status of its run

The log is read through `dashboard.tail`, never as a whole for each look, and no record of a run is opened.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from assay.errors import legible
from assay.records.events import (
    CellEndEvent,
    CellEvent,
    CellPhaseEvent,
    CellStartEvent,
    LogEvent,
    OverEvent,
    PlanEvent,
    TurnEvent,
)
from assay.studies.folder import StudyFolder

WAITING = "waiting"
_LONGEST_NAME = 300


class CellState(NamedTuple):
    """State of one cell."""

    cell: str
    run: str
    """Id of its run; empty before it starts."""
    state: str
    ended: bool


class Course:
    """Digest of a study's log (`dashboard.tail`): the cells that changed in a piece, as far as it tells."""

    def __init__(self) -> None:
        self._states: dict[str, CellState] = {}
        self._over: str | None = None

    def __call__(self, events: Sequence[LogEvent]) -> list[dict[str, Any]]:
        """Return one batch with the newest state of each cell that the piece names."""
        changed: dict[str, CellState] = {}
        for event in events:
            if isinstance(event, OverEvent):
                self._over = legible(event.ending, 100)
            elif isinstance(event, PlanEvent):  # a resumed study begins again
                self._over = None
            elif isinstance(event, CellEvent):
                name = event.cell
                before = self._states.get(name, CellState(legible(name, _LONGEST_NAME), "", WAITING, False))
                changed[name] = self._states[name] = _after(before, event)
        return [{"cells": [one._asdict() for one in changed.values()], "over": self._over}]


def _after(before: CellState, event: CellEvent) -> CellState:
    """State of a cell after an event; an event of another version changes nothing."""
    match event:
        case CellStartEvent():
            return before._replace(run=legible(event.run, _LONGEST_NAME), state="starting", ended=False)
        case TurnEvent():
            words = {"start": "starting", "block": f"block {event.number}", "finish": "finishing"}
            return before._replace(state=words.get(event.piece, before.state))
        case CellPhaseEvent() if not before.state.startswith("block"):
            return before._replace(state=legible(event.phase, 100).replace("_", " "))
        case CellEndEvent():
            return before._replace(state=legible(event.status, 100).replace("_", " "), ended=True)
    return before


def merge_cells(batches: Iterable[dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the newest state of each cell by name, and the ending of the study, if it is over."""
    cells: dict[str, dict[str, Any]] = {}
    over = None
    for batch in batches:
        cells |= {one["cell"]: one for one in batch["cells"]}
        over = batch["over"]
    return cells, over


def planned_cells(names: Iterable[str], known: dict[str, dict[str, Any]], *, running: bool) -> list[dict[str, Any]]:
    """Return the state of every planned cell; of a study that has stopped, a cell without an end is missing."""
    found = []
    for name in names:
        shown = legible(name, _LONGEST_NAME)
        one = known.get(shown, CellState(shown, "", WAITING, False)._asdict())
        found.append(one if one["ended"] or running else {**one, "state": "missing"})
    return found


def cell_names(folder: StudyFolder) -> list[str]:
    """Return the names of all planned cells, or of those of the record if an earlier version wrote no plan."""
    plan = folder.plan()
    if plan is not None:
        return [cell.name for cell in plan.cells]
    record = folder.record()
    return [] if record is None else [one.cell.name for one in record.cells]
