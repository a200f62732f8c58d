"""Time that is left of cells that run beside each other, without turns.

Such cells differ in length, and a study of scaling has one that is as long as all others together. So the time of a
cell is taken as proportional to its FLOPs, 6·N·D, at the mean rate of those that have ended. The time left is at least
that of the longest cell. It is also at least the sum over all cells, divided by the number that work at once.
"""

import time
from collections.abc import Callable, Sequence

from assay.cost import parameter_count
from assay.records.study import Cell


class Untimed:
    """Cells with the times of their starts and ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._took: list[tuple[float, float]] = []
        """Work and seconds of each cell that has ended."""
        self._most = 1

    def start(self, cell: Cell) -> None:
        """Note that a cell begins."""
        self._began[cell.name] = self._clock()
        self._most = max(self._most, len(self._began))

    def end(self, cell: Cell) -> None:
        """Note that a cell has ended; one that ended earlier took no time here."""
        began = self._began.pop(cell.name, None)
        if began is not None:
            self._took.append((_work(cell), self._clock() - began))

    def seconds_left(self, cells: Sequence[Cell]) -> float | None:
        """Return the seconds in which these cells will have ended; None before one has."""
        if not self._took:
            return None
        rate = sum(seconds for _, seconds in self._took) / sum(work for work, _ in self._took)
        now = self._clock()
        rests = [max(0.0, rate * _work(one) - now + self._began.get(one.name, now)) for one in cells]
        return max((*rests, sum(rests) / self._most)) if rests else 0.0


def _work(cell: Cell) -> float:
    run = cell.run.with_vocabulary()
    size = parameter_count(run.model) if run.model.vocab_size is not None else run.model.n_layer * run.model.n_embd**2
    return float(size * run.training.steps * run.tokens_per_step)
