"""Cells of a study: one for every row at every seed, and two for the control.

A cell is one run in a process of its own. The control, or baseline, is in the design twice, with the same configuration
and the same seed: an A/A comparison in every group of cells. Both of its runs are the control of every other row. Rows
share their seeds, so each difference is between two runs with the same initial weights and the same batches.

Processes of one row differ by chance, and blocks within a process cannot show by how much. So each row has several
processes: one per seed, and with few seeds several at each.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.hardware import detect
from assay.launch.prepare import check_room
from assay.optimizations import Unavailable, check
from assay.records.study import AGAIN, BASELINE, Cell

LEAST_PROCESSES = 3
"""Least processes of each row by default. Two treatments then leave 7 degrees of freedom, and five leave 13."""


MOST_PROCESSES = 10_000
"""Most processes of a row over all seeds."""


def enough(seeds: int) -> int:
    """Processes of each row at each seed that give a row at least `LEAST_PROCESSES` in all."""
    return -(-LEAST_PROCESSES // max(seeds, 1))


class Treatment(NamedTuple):
    """One combination of levels."""

    label: str
    levels: Mapping[str, str]
    run: ResolvedRun
    placebo: bool = False
    """True if the row runs the control under another label."""


def cross_cells(rows: Sequence[Treatment], seeds: Sequence[int], processes: int) -> tuple[Cell, ...]:
    """Return the cells, seed by seed and process by process: the control twice, then the other rows.

    The control is the first row. Raises `UsageError` for less than one process, and for a seed that is given twice.
    """
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds={list(seeds)} has a seed twice; give each once")
    if processes < 1:
        raise UsageError(f"processes={processes} is not possible; a row needs at least one process at each seed")
    if len(seeds) * processes > MOST_PROCESSES:
        many = f"{len(seeds)} seeds with {processes} processes"
        raise UsageError(f"{many} are too many; a row has at most {MOST_PROCESSES}")
    control, *others = rows
    named = [(BASELINE, 0, control), (AGAIN, 1, control), *((row.label, 0, row) for row in others)]
    return tuple(
        Cell(
            treatment=name,
            levels=dict(row.levels),
            replicate=replicate,
            seed=seed,
            process=process,
            run=row.run.model_copy(update={"seed": seed}),
        )
        for seed in seeds
        for process in range(processes)
        for name, replicate, row in named
    )


def able(cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Return the cells that this machine can run, and a sentence on each row that it cannot.

    Raises `Unavailable` if the control is among those, and `UsageError` for a cell that no machine can run.
    """
    machine, missing = detect(), dict[str, str]()
    for cell in {one.treatment: one for one in cells}.values():
        try:
            check_room(cell.run, machine, cell.run.ranks)
            check(cell.run, machine)
        except Unavailable as reason:
            if cell.treatment == BASELINE:
                raise
            missing[cell.treatment] = f"{cell.treatment} was left out, because this machine cannot run it: {reason}."
    return tuple(cell for cell in cells if cell.treatment not in missing), tuple(missing.values())
