"""News of a study as lines of its event log, and back, so that any process can follow it."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay.config.home import Home
from assay.executors.base import (
    Ended,
    Interrupting,
    News,
    Piece,
    Planned,
    RoundEnded,
    Started,
    Stepped,
    Turn,
    Wave,
    Working,
)
from assay.records.events import (
    CellEndEvent,
    CellEvent,
    CellPhaseEvent,
    CellStartEvent,
    InterruptingEvent,
    LogEvent,
    PhaseEvent,
    PlanEvent,
    RoundEvent,
    RungEvent,
    StepEvent,
    TurnEvent,
)
from assay.records.study import Cell
from assay.store.event_log import Event
from assay.store.result import settle
from assay.store.run_folder import RunFolder

_PIECES: Mapping[str, Piece] = {"start": "start", "block": "block", "finish": "finish"}


def of_run(event: LogEvent, cell: Cell) -> News | None:
    """Return the news of an event of a cell's run; None if it has none."""
    if isinstance(event, PhaseEvent):
        return Working(cell, event.name)
    if isinstance(event, StepEvent) and event.loss is not None:
        return Stepped(cell, event.step + 1, event.loss)
    return None


def to_event(news: News) -> Event | None:
    """Return the line of the log for an item of news.

    None for the plan, which has a file of its own, and for a step, which the log of its run has.
    """
    match news:
        case Turn(cell, piece, number):
            return {"event": "turn", "cell": cell.name, "piece": piece, "number": number, "time": _now()}
        case Started(cell, run, wave):
            return {"event": "cell_start", "cell": cell.name, "run": run, "wave": wave}
        case Working(cell, phase):
            return {"event": "cell_phase", "cell": cell.name, "phase": phase}
        case RoundEnded(ended):
            return {"event": "round", "round": ended.model_dump(mode="json")}
        case Ended(cell, result, wave):
            ending = {"status": result.status.value, "time": _now()}
            return {"event": "cell_end", "cell": cell.name, "run": result.run, "wave": wave, **ending}
        case Interrupting():
            return {"event": "interrupting"}
    return None


def _now() -> float:
    """Seconds since the epoch, to the millisecond; a follower reads the time left off them."""
    return round(time.time(), 3)


def from_events(
    events: Iterable[LogEvent], waves: Sequence[Wave], blocks: int, home: Home, study: str = ""
) -> Iterator[News]:
    """Yield the news of a log's lines. Lines of an unknown kind, or about an unknown cell, are skipped."""
    cells = {cell.name: cell for wave in waves for cell in wave}
    for event in events:
        if isinstance(event, PlanEvent):
            yield Planned(tuple(waves), blocks, study)
        elif isinstance(event, RungEvent):
            yield Planned(tuple(wave for wave in waves if wave[0].treatment in event.rows), blocks, study)
        elif isinstance(event, RoundEvent):
            yield RoundEnded(event.round)
        elif isinstance(event, InterruptingEvent):
            yield Interrupting()
        elif isinstance(event, CellEvent) and (cell := cells.get(event.cell)) is not None:
            yield from _of_cell(event, cell, home)


def _of_cell(event: CellEvent, cell: Cell, home: Home) -> Iterator[News]:
    if isinstance(event, TurnEvent) and event.piece in _PIECES:
        yield Turn(cell, _PIECES[event.piece], event.number)
    elif isinstance(event, CellStartEvent):
        yield Started(cell, event.run, event.wave)
    elif isinstance(event, CellPhaseEvent):
        yield Working(cell, event.phase)
    elif isinstance(event, CellEndEvent):
        yield Ended(cell, settle(RunFolder(home.runs / event.run)), event.wave)
