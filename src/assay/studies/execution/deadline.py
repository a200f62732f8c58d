"""A limit on the time of a study: nothing begins that the time left would probably not hold.

The time of a wave is predicted, and corrected by the waves that have ended (`pace`). A wave without a known time
begins. One that is too long is ended at the border of a cell: its first cells begin, as many as the time left holds. A
wave of several cells begins with its control, so a part of it has at least one row with a control beside it. A
fractional design is not divided, because without one of its rows no effect can be computed.

The rest is not lost: `assay study resume` runs it. Cells that were left over from a wave get a control of their own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil

from assay.errors import UsageError
from assay.executors.base import News, Wave
from assay.records.study import BASELINE, Cell
from assay.studies.execution.order import CONTROLS
from assay.studies.execution.pace import Pace, Predicted
from assay.studies.folder import StudyPlan
from assay.units import format_seconds

_EVERY = float("inf")

Numbered = Sequence[tuple[int, Wave]]


class Deadline:
    """Waves that can end in time.

    `whole`: the waves of a seed begin only if all of them can end. `beside`: how many cells run at once.
    """

    def __init__(
        self,
        hours: float | None,
        predicted: Predicted = lambda cell: None,
        *,
        whole: bool = False,
        beside: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = _EVERY if hours is None else 3600 * hours
        self.reached = False
        """True once a cell was held back."""
        self.cut: Wave = ()
        """Cells of the wave that has begun without them."""
        self._whole = whole
        self._beside = beside
        self._clock = clock
        self._pace = Pace(predicted, clock)
        self._began: float | None = None

    def hear(self, news: News) -> None:
        """Learn from the ends of cells how long they took."""
        self._pace.hear(news)

    def check(self, waves: Numbered) -> None:
        """Raise `UsageError` if the limit would probably not hold even the first cells of these waves.

        Those are the controls and a row, also where each cell is a wave of its own.
        """
        needed = self._needed([(waves[0][0], _group(waves))])
        seconds = self._seconds(needed)
        if seconds is not None and seconds > self.seconds:
            why = "one seed of a fractional design, which shows no effect without all of its rows,"
            what = why if self._whole else f"the first runs ({', '.join(cell.treatment for cell in needed)})"
            raise UsageError(
                f"--max-hours {self.seconds / 3600:g} is too short: {what} would take about {format_seconds(seconds)}; "
                "give more hours or fewer steps"
            )

    def expected(self, waves: Numbered) -> float | None:
        """Return the seconds that these waves will take at most; None if they are not known."""
        cells = tuple(cell for _, wave in waves for cell in wave)
        seconds = self._seconds(cells) if cells else None
        return None if seconds is None else min(seconds, self.seconds)

    def before(self, waves: Numbered) -> Iterator[tuple[int, Wave]]:
        """Yield the waves while there is time; the next one is requested when it can begin.

        The limit counts from the first wave of the first call.
        """
        self._began = self._clock() if self._began is None else self._began
        for at, (number, wave) in enumerate(waves):
            begun = wave[: self._fitting(waves[at:])]
            self.reached = len(begun) < len(wave)
            if begun:
                self.cut = wave[len(begun) :]
                self._pace.begin(number, begun)
                yield number, begun
            if self.reached:
                return

    def _fitting(self, waves: Numbered) -> int:
        """Return how many cells of the first wave can begin."""
        wave, needed = waves[0][1], self._needed(waves)
        if not self._holds(needed):
            return 0
        if self._whole:
            return len(wave)
        return max((count for count in range(len(needed), len(wave) + 1) if self._holds(wave[:count])), default=0)

    def _needed(self, waves: Numbered) -> Wave:
        """Return the least that must fit: the controls of the first wave with a row, or all cells of its seed."""
        wave = waves[0][1]
        if self._whole:
            return _group(waves)
        return wave[: 1 + next((at for at, cell in enumerate(wave) if cell.treatment not in CONTROLS), len(wave))]

    def _seconds(self, cells: Wave) -> float | None:
        """Return the seconds that cells will take, as many at once as run beside each other."""
        seconds = self._pace.seconds(cells)
        beside = min(self._beside, len({cell.branch.cell if cell.branch else cell.name for cell in cells}))
        return None if seconds is None else seconds * ceil(len(cells) / beside) / len(cells)

    def _holds(self, cells: Wave) -> bool:
        """True if the time left would hold the cells, or if nothing is known of their time."""
        seconds = self._seconds(cells)
        spent = 0.0 if self._began is None else self._clock() - self._began
        return seconds is None or spent + seconds <= self.seconds


def _group(waves: Numbered) -> Wave:
    """Return the cells that have the seed and the process of the first one."""
    first = waves[0][1][0]
    return tuple(cell for _, wave in waves for cell in wave if cell.group == first.group)


def with_rest(plan: StudyPlan, rest: Wave) -> StudyPlan:
    """Return the plan in which some cells of a wave are a wave of their own, with a control of their own if timed.

    The wave is the last, so that the others keep their numbers.
    """
    if not rest:
        return plan
    names = {cell.name for cell in rest}
    begun = (tuple(cell for cell in wave if cell.name not in names) for wave in plan.waves)
    if not plan.protocol.blocks:
        return plan.model_copy(update={"waves": (*begun, rest)})
    controls = [cell for cell in plan.cells if cell.treatment in CONTROLS and cell.group == rest[0].group]
    baseline: Cell = next(cell for cell in controls if cell.treatment == BASELINE)
    return plan.model_copy(update={"waves": (*begun, (baseline.repeated(len(controls)), *rest))})
