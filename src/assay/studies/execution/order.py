"""The order of cells in a study, and the waves that are due.

Cells of one seed belong together, because differences are taken within a seed. Of each seed the control and its A/A
copy are first. Without a limit of time timed rows follow in an order that is shuffled for each seed. So a slow drift of
the machine is not a row's, also where each cell runs alone. It is shuffled reproducibly, and the plan has it. Rows
without times keep their order, and a trunk is before the cells that branch from it.

With a limit of time an early stop must leave a design from which something follows. So the rows follow whose absence
costs most.

- *factorial*: rows that change one factor, which show its effect; then two factors, which show interactions; then more.
- *other kinds*: the rows in the order of the design: a ladder from its lowest rung, one factor after the other.

The nudged control of a seed is its last. Further processes of a row follow the first process of all seeds.

Of a search by successive halving the waves are due rung by rung. The plan has a cell for every row of every rung. The
rows of a rung that run follow from the results of the rung before it. So they follow from the log, and a study that was
stopped goes on with the same rows.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from statistics import fmean

from assay.executors.base import Wave
from assay.records.study import AGAIN, BASELINE, Cell, CellResult
from assay.studies.drift import NUDGED
from assay.studies.execution.fold import Progress
from assay.studies.folder import StudyPlan
from assay.studies.kinds.factorial import Factorial

CONTROLS = (BASELINE, AGAIN)

_Rank = tuple[float, int]
"""The rank of a cell by need, the most needed first, and the place of its row in the design."""


def shuffle_rows(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with the rows of each seed and process in a random order after its control and A/A copy."""
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.seed, cell.process), []).append(cell)
    found: list[Cell] = []
    for (seed, process), group in groups.items():
        rows = [cell for cell in group if cell.treatment not in CONTROLS]
        random.Random(f"seed {seed}, process {process}").shuffle(rows)
        found += [*(cell for cell in group if cell.treatment in CONTROLS), *rows]
    return found


def in_order(cells: Sequence[Cell], kind: str) -> list[Cell]:
    """Return the cells of a study of some kind in the order in which they are needed."""
    group, rank = _groups(cells), _ranks(cells, tuple(dict.fromkeys(cell.treatment for cell in cells)), kind)
    return sorted(cells, key=lambda cell: (group(cell), rank(cell)))


def waves_in_order(
    waves: Sequence[tuple[int, Wave]], cells: Sequence[Cell], rows: Sequence[str], kind: str
) -> list[tuple[int, Wave]]:
    """Return numbered waves, and the cells of each, in the order in which they are needed.

    `cells` are all of the study, and `rows` its treatments in the order of its design.
    """
    group, rank = _groups(cells), _ranks(cells, rows, kind)

    def need(numbered: tuple[int, Wave]) -> tuple[tuple[int, int], _Rank]:
        ranks = [rank(cell) for cell in numbered[1] if cell.treatment not in CONTROLS]
        return group(numbered[1][0]), min(ranks, default=(0.0, 0))

    # A trunk stays before the cells that branch from it.
    ordered = (
        (number, tuple(sorted(wave, key=lambda cell: (cell.branch is not None, rank(cell))))) for number, wave in waves
    )
    return sorted(ordered, key=need)


def _groups(cells: Sequence[Cell]) -> Callable[[Cell], tuple[int, int]]:
    """Return the function that gives a cell's process and the place of its seed."""
    seeds = {seed: at for at, seed in enumerate(dict.fromkeys(cell.seed for cell in cells))}
    return lambda cell: (cell.process, seeds[cell.seed])


def _ranks(cells: Sequence[Cell], rows: Sequence[str], kind: str) -> Callable[[Cell], _Rank]:
    """Return the function that ranks the cells of a seed: the control first, at 0, and equal needs as designed."""
    control: Mapping[str, str] = next((cell.levels for cell in cells if cell.treatment == BASELINE), {})

    places = {row: at for at, row in enumerate(rows)}

    def rank(cell: Cell) -> _Rank:
        if cell.treatment in CONTROLS:
            return 0.0, 0
        if cell.treatment == NUDGED:
            return inf, 0
        changes = sum(level != control.get(key) for key, level in cell.levels.items()) if kind == Factorial.kind else 0
        return 1.0 + changes, places[cell.treatment]

    return rank


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
