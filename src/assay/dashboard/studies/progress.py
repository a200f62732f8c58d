"""The course of one study as its log tells it: the state of every cell, and the time left.

    waiting → starting → a phase or a block of its work → the status of its run

The log is read through `dashboard.tail`, never as a whole for each look, and no record of a run is opened. The time
left is that of the board in a terminal, by the times of the log. So it does not matter when the dashboard began.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from assay.analysis.factors.layout import cell_names, planned_names
from assay.config.home import Home
from assay.errors import UsageError, legible
from assay.executors.base import Planned
from assay.executors.news import from_events
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
from assay.records.study import Cell
from assay.report.comparison.progress import Board
from assay.studies.folder import StudyFolder, StudyPlan

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
    """Digest of a study's log (`dashboard.tail`): the cells that changed in a piece, as far as it tells.

    `plan` reads the plan, by which the time left is known. It is called for a study that goes on.
    """

    def __init__(self, plan: Callable[[], StudyPlan | None] = lambda: None) -> None:
        self._states: dict[str, CellState] = {}
        self._over: str | None = None
        self._plan = plan
        self._timed: _TimedBoard | None = None

    def __call__(self, events: Sequence[LogEvent]) -> list[dict[str, Any]]:
        """Return one batch with the newest state of each cell that the piece names."""
        before = {one.cell: one.state for one in self._states.values() if one.ended}
        changed: dict[str, CellState] = {}
        for event in events:
            if isinstance(event, OverEvent):
                self._over = legible(event.ending, 100)
            elif isinstance(event, PlanEvent):
                self._over = None
            elif isinstance(event, CellEvent):
                self._over = None  # a study that was stopped goes on
                name = event.cell
                earlier = self._states.get(name, CellState(legible(name, _LONGEST_NAME), "", WAITING, False))
                changed[name] = self._states[name] = _after(earlier, event)
        cells = [one._asdict() for one in changed.values()]
        return [{"cells": cells, "over": self._over, "progress": self._progress(events, before)}]

    def _progress(self, events: Sequence[LogEvent], ended: dict[str, str]) -> str | None:
        """Return a text such as ``"3 of 14 runs, about 40 s left"``; None if the study is over, or has no plan."""
        if self._over is not None:
            self._timed = None
            return None
        if self._timed is None:
            try:
                plan = self._plan()
            except UsageError:
                plan = None
            if plan is None:
                return None
            self._timed = _TimedBoard(plan, ended)
        return self._timed.hear(events)


class _TimedBoard:
    """The terminal's board, whose clock is the log's."""

    def __init__(self, plan: StudyPlan, ended: dict[str, str]) -> None:
        self._now = 0.0
        self._waves, self._blocks = plan.waves, plan.protocol.blocks
        self._cells = {cell.name: cell for cell in plan.cells}
        self._board = Board(lambda: self._now)
        self._board.hear(Planned(self._waves, self._blocks))
        for name in ended.keys() & self._cells.keys():
            self._board.end(self._cells[name], ended[name])

    def hear(self, events: Sequence[LogEvent]) -> str:
        """Return the progress after some events."""
        for news in from_events(self._passed(events), self._waves, self._blocks, Home("")):
            self._board.hear(news)
        return self._board.progress()

    def _passed(self, events: Sequence[LogEvent]) -> Iterator[LogEvent]:
        """Yield all events but the ends of cells, which need no result here; set the clock to the time of each."""
        for event in events:
            if isinstance(event, TurnEvent | CellEndEvent) and event.time is not None:
                self._now = event.time
            if not isinstance(event, CellEndEvent):
                yield event
            elif event.cell in self._cells:
                self._board.end(self._cells[event.cell], event.status)


def _after(before: CellState, event: CellEvent) -> CellState:
    """State of a cell after an event; an event of another version changes nothing."""
    match event:
        case CellStartEvent():
            return before._replace(run=legible(event.run, _LONGEST_NAME), state="starting", ended=False)
        case TurnEvent():
            words = {"start": "starting", "block": f"timing {event.number}", "finish": "finishing"}
            return before._replace(state=words.get(event.piece, before.state))
        case CellPhaseEvent() if not before.state.startswith("timing"):
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


def progress_of(batches: Sequence[dict[str, Any]]) -> str:
    """Return how far a running study has come, with its time left; empty if that is not known."""
    return (batches[-1]["progress"] or "") if batches else ""


def planned_cells(names: Mapping[str, str], known: dict[str, dict[str, Any]], *, running: bool) -> list[dict[str, Any]]:
    """Return the state of every planned cell with the name that a reader sees.

    Of a study that has stopped, a cell without an end is missing.
    """
    found = []
    for name, shown in names.items():
        cell = legible(name, _LONGEST_NAME)
        one = {**known.get(cell, CellState(cell, "", WAITING, False)._asdict()), "name": legible(shown, _LONGEST_NAME)}
        found.append(one if one["ended"] or running else {**one, "state": "missing"})
    return found


def names_of_cells(folder: StudyFolder) -> dict[str, str]:
    """Return the short name of each planned cell by its own, or of those of a record that has no plan."""
    cells = _cells(folder)
    return cell_names(cells, planned_names(cells))


def _cells(folder: StudyFolder) -> Sequence[Cell]:
    plan = folder.plan()
    if plan is not None:
        return plan.cells
    record = folder.record()
    return () if record is None else [one.cell for one in record.cells]
