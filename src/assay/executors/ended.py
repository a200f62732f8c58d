"""The end of a cell: its result with its losses and times, and news that must not fail at a closed terminal."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from assay.executors.base import Listener, News
from assay.records.events import LogEvent
from assay.records.run import RunResult
from assay.records.study import Cell, CellResult, Curve
from assay.store import history

_DIGITS = 6
"""Decimals of a step's seconds that are kept."""
_LARGEST = float(np.finfo(np.float32).max)


def cell_result(cell: Cell, wave: int, result: RunResult, events: Sequence[LogEvent]) -> CellResult:
    """Return a cell with its result, its losses, and how it began, which are in the events of its run."""
    begun = history.was_forked(events)
    return CellResult(cell=cell, wave=wave, result=result, curve=curve_of(events), forked=begun)


def curve_of(events: Sequence[LogEvent]) -> Curve:
    """The losses and times up to the first step whose event is missing, so that a position in the curve is a step."""
    steps = [step for at, step in enumerate(history.steps(events)) if step.step == at]
    return Curve(
        train_loss=tuple(_shortest(step.loss) for step in steps),
        evaluations=tuple((seen.step, seen.loss) for seen in history.evaluations(events)),
        step_seconds=tuple(round(step.seconds, _DIGITS) for step in steps),
        unsteady=tuple(step.step for step in steps if step.phase != "steady"),
    )


def _shortest(loss: float | None) -> float | None:
    """The number with the fewest digits that is the same float32: a record has thousands, of which it is most."""
    return loss if loss is None or abs(loss) > _LARGEST else float(str(np.float32(loss)))


def without_a_terminal(tell: Listener) -> Listener:
    """Wrap the listener, because its terminal may have closed: a failure to print must not lose a result."""

    def told(news: News) -> None:
        with suppress(OSError):
            tell(news)

    return told
