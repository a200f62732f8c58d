"""The waves that are due: all of them, or rung by rung in a search by successive halving.

The plan has a cell for every row of every rung. The rows of a rung that run follow from the results of the rung before
it. So they follow from the log, and a study that was stopped goes on with the same rows.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import fmean

from assay.executors.base import Wave
from assay.records.study import CellResult
from assay.studies.execution.fold import Progress
from assay.studies.folder import StudyPlan


def rows_of(plan: StudyPlan, done: Sequence[CellResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of each rung that run, as far as results decide them; the first has the control as well.

    Nothing is yielded for a study without rungs.
    """
    if plan.halving is None:
        return
    names = {cell.treatment for cell in plan.cells}
    searched = {row for rung in plan.halving.rungs for row in rung}
    chosen = list(range(len(plan.halving.rungs[0])))
    yield (*(names - searched), *plan.halving.rungs[0])
    for before, rung, kept in zip(plan.halving.rungs, plan.halving.rungs[1:], plan.halving.kept[1:], strict=False):
        rows = [before[place] for place in chosen]
        expected = {cell.name for cell in plan.cells if cell.treatment in rows}
        if not expected <= {one.cell.name for one in done}:
            return
        of_row = {place: [one for one in done if one.cell.treatment == before[place]] for place in chosen}
        losses = {place: loss for place, cells in of_row.items() if (loss := mean_loss(cells)) is not None}
        chosen = sorted(sorted(losses, key=lambda place: losses[place])[:kept])
        if not chosen:
            return
        yield tuple(rung[place] for place in chosen)


def due(plan: StudyPlan, done: Progress) -> list[tuple[int, Wave]]:
    """Return the numbered waves that have no result and can run now."""
    missing = done.missing(plan)
    if plan.halving is None:
        return missing
    rows = known_rows(plan, done.cells)
    return [(number, wave) for number, wave in missing if wave[0].treatment in rows]


def known_rows(plan: StudyPlan, done: Sequence[CellResult]) -> frozenset[str]:
    """Return the rows of a search that are known to run, whether they have ended or not."""
    return frozenset(row for rung in rows_of(plan, done) for row in rung)


def mean_loss(cells: Sequence[CellResult]) -> float | None:
    """Return the mean validation loss of a row's cells; None unless all have finished with one."""
    losses = [
        one.result.loss.val_loss for one in cells if one.result.status.finished and one.result.loss.val_loss is not None
    ]
    return fmean(losses) if losses and len(losses) == len(cells) and all(map(isfinite, losses)) else None
