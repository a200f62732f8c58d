"""The studies of a home, from their plans and logs: one line each, the state of every cell, and the time left.

    waiting → starting → a phase or a block of its work → the status of its run

A plan is read once, and again when it changes. A log is read once, and then from where the last reading ended. So it
does not matter how many studies there are. No record of a run is opened. The time left is that of the board in a
terminal, by the times of the log. So it does not matter when the dashboard began.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.analysis.factors.layout import cell_names, planned_names
from assay.config.home import Home
from assay.dashboard.stream import Tail
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
from assay.records.study import Cell, ComparisonRecord
from assay.report.comparison.progress import Board
from assay.studies.folder import StudyFolder, StudyPlan, folders

WAITING = "waiting"
_LONGEST_NAME = 300
_LONGEST_TEXT = 200


class CellState(NamedTuple):
    """State of one cell."""

    cell: str
    run: str
    """Id of its run; empty before it starts."""
    state: str
    ended: bool


class Course:
    """Digest of a study's log (`dashboard.stream`): the cells that changed in a piece, as far as it tells.

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


class StudyLine(NamedTuple):
    """One study in the list."""

    id: str
    title: str
    """Its name, or its base if it has none."""
    base: str
    """Its preset or file."""
    kind: str
    question: str
    status: str
    cells: int
    """Planned cells."""
    ended: int


class _Planned(NamedTuple):
    """Facts for the list, of a plan, or of the record of a comparison that has none."""

    title: str
    base: str
    kind: str
    question: str
    cells: int
    runs: frozenset[str]
    """Runs that the record names; empty for a plan, whose log names them."""


class Studies:
    """The studies of a home. Any thread may use it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._tails: dict[Path, Tail] = {}
        """One for each study of the home. They are small: a digest has the states of cells only."""
        self._plans: dict[Path, tuple[int, _Planned]] = {}
        self._lock = threading.Lock()

    def known(self) -> list[StudyLine]:
        """All studies, newest first; one that cannot be read is damaged."""
        there = folders(self._home)
        logs = {folder.events_file for folder in there}
        with self._lock:
            self._tails = {log: tail for log, tail in self._tails.items() if log in logs}
        return [self.line(folder) for folder in reversed(there)]

    def line(self, folder: StudyFolder) -> StudyLine:
        """Return one study for the list."""
        try:
            planned = self._planned(folder)
        except UsageError as error:
            return StudyLine(folder.id, "", "", "", legible(str(error), _LONGEST_TEXT), "damaged", 0, 0)
        cells, over = merge_cells(self.tail(folder).since(0)[0])
        status = "running" if folder.running else over or ("complete" if planned.runs else "stopped")
        ended = len(planned.runs) or sum(one["ended"] for one in cells.values())
        return StudyLine(folder.id, *planned[:4], status, planned.cells, ended)

    def runs(self, name: str) -> frozenset[str]:
        """Return the ids of a study's runs; none if there is no such study."""
        folder = next((one for one in folders(self._home) if one.id == name), None)
        if folder is None:
            return frozenset()
        cells, _ = merge_cells(self.tail(folder).since(0)[0])
        try:
            return self._planned(folder).runs | {one["run"] for one in cells.values()}
        except UsageError:
            return frozenset()

    def tail(self, folder: StudyFolder) -> Tail:
        """Return the tail of a study's log."""
        log = folder.events_file
        with self._lock:
            return self._tails.setdefault(log, Tail(log, Course(folder.plan)))

    def _planned(self, folder: StudyFolder) -> _Planned:
        """Read what the list needs, or recall it. Raises `UsageError` if a file cannot be read."""
        path = folder.plan_file if folder.plan_file.exists() else folder.record_file
        stamp = path.stat().st_mtime_ns
        with self._lock:
            known = self._plans.get(path)
            if known is None or known[0] != stamp:
                known = self._plans[path] = (stamp, _read(folder))
            return known[1]


def _read(folder: StudyFolder) -> _Planned:
    stated: StudyPlan | None = folder.plan()
    if stated is not None:
        count, runs = len(stated.cells), frozenset[str]()
        return _Planned(*_texts(stated), count, runs)
    record = folder.record()
    if record is None:
        raise UsageError(f"the study {folder.id} has neither a plan nor a record")
    runs = frozenset(one.result.run for one in (*record.cells, *record.nudged))
    return _Planned(*_texts(record), len(runs), runs)


def _texts(stated: StudyPlan | ComparisonRecord) -> tuple[str, str, str, str]:
    texts = (stated.name or stated.title, stated.title, stated.kind, stated.question)
    title, base, kind, question = (legible(text, _LONGEST_TEXT) for text in texts)
    return title, base, kind, question
