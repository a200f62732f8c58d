"""The order of cells in a study: the rows of each seed in an order of their own, or by need if time is limited.

Cells of one seed belong together, because differences are taken within a seed. Of each seed the control and its A/A
copy are first. Without a limit of time timed rows follow in an order that is shuffled for each seed. So a slow drift of
the machine is not a row's, also where each cell runs alone. It is shuffled reproducibly, and the plan has it. Rows
without times keep their order, and a trunk is before the cells that branch from it.

With a limit of time an early stop must leave a design from which something follows. So the rows follow whose absence
costs most.

- *factorial*: rows that change one factor, which show its effect; then two factors, which show interactions; then more.
- *other kinds*: the rows in the order of the design: a ladder from its lowest rung, one factor after the other.

The nudged control of a seed is its last. Further processes of a row follow the first process of all seeds.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from math import inf

from assay.executors.base import Wave
from assay.records.study import AGAIN, BASELINE, Cell
from assay.studies.drift import NUDGED
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
