"""The order of cells in a study with a limit of time: an early stop leaves a design from which something follows.

Cells of one seed belong together, because differences are taken within a seed. Of each seed the control and its A/A
copy are first. Then come the rows whose absence costs most.

- *factorial*: rows that change one factor, which show its effect; then two factors, which show interactions; then more.
- *other kinds*: the rows in the order of the design: a ladder from its lowest rung, one factor after the other.

The nudged control of a seed is its last. Further processes of a row follow the first process of all seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from assay.executors.base import Wave
from assay.records.study import AGAIN, BASELINE, Cell
from assay.studies.drift import NUDGED
from assay.studies.kinds.factorial import Factorial

CONTROLS = (BASELINE, AGAIN)


def in_order(cells: Sequence[Cell], kind: str) -> list[Cell]:
    """Return the cells of a study of some kind in the order in which they are needed."""
    group, rank = _groups(cells), _ranks(cells, kind)
    return sorted(cells, key=lambda cell: (group(cell), rank(cell)))


def waves_in_order(waves: Sequence[tuple[int, Wave]], cells: Sequence[Cell], kind: str) -> list[tuple[int, Wave]]:
    """Return numbered waves, and the cells of each, in the order in which they are needed.

    `cells` are all of the study, in the order of its design.
    """
    group, rank = _groups(cells), _ranks(cells, kind)

    def need(numbered: tuple[int, Wave]) -> tuple[tuple[int, int], float]:
        rows = [rank(cell) for cell in numbered[1] if cell.treatment not in CONTROLS]
        return group(numbered[1][0]), min(rows, default=0.0)

    ordered = ((number, tuple(sorted(wave, key=rank))) for number, wave in waves)
    return sorted(ordered, key=need)


def _groups(cells: Sequence[Cell]) -> Callable[[Cell], tuple[int, int]]:
    """Return the function that gives a cell's process and the place of its seed."""
    seeds = {seed: at for at, seed in enumerate(dict.fromkeys(cell.seed for cell in cells))}
    return lambda cell: (cell.process, seeds[cell.seed])


def _ranks(cells: Sequence[Cell], kind: str) -> Callable[[Cell], float]:
    """Return the function that ranks the cells of a seed: the control first, at 0."""
    control: Mapping[str, str] = next((cell.levels for cell in cells if cell.treatment == BASELINE), {})

    def rank(cell: Cell) -> float:
        if cell.treatment in CONTROLS:
            return 0.0
        if cell.treatment == NUDGED:
            return inf
        if kind != Factorial.kind:
            return 1.0
        return 1.0 + sum(level != control.get(key) for key, level in cell.levels.items())

    return rank
