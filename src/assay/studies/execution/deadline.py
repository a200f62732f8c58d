"""A limit on the time of a study: nothing begins that the time left would probably not hold.

The time of a wave is predicted, and corrected by the waves that have ended (`Pace`). A wave without a known time
begins. One that is too long is ended at the border of a cell: its first cells begin, as many as the time left holds. A
wave of several cells begins with its control, so a part of it has at least one row with a control beside it. A
fractional design is not divided, because without one of its rows no effect can be computed.

The rest is not lost: `assay study resume` runs it. Cells that were left over from a wave get a control of their own.

Seconds of cells are as predicted, times how much longer the finished waves took than predicted. Without predictions it
is the mean time of the finished cells. Waves in which a cell failed do not correct the predictions, since such a cell
ended early.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.executors.base import Ended, News, Wave
from assay.records.study import BASELINE, Cell
from assay.studies.execution.order import CONTROLS
from assay.studies.folder import StudyPlan
from assay.units import format_seconds

Predicted = Callable[[Cell], float | None]
"""Returns the predicted seconds of a cell from its start to its end; None if they are not known."""


START_SECONDS = 4.0
"""From the start of a process to its first step, and from its last step to its end; measured on two cores.

Cells that take turns import at once, one on each core, so theirs is 3 s."""

_FORWARD = 1 / 3
"""Share of a step that its forward pass takes: backward has twice its products (Kaplan et al. 2020)."""


@dataclass
class _Begun:
    """A wave that has begun."""

    at: float
    predicted: float | None
    cells: int
    living: set[str]
    clean: bool = True
    """False once a cell has failed."""
    seconds: float | None = None
    """Seconds from its start to its end; None while it runs."""


class Pace:
    """Predicted and measured seconds of the waves of a study."""

    def __init__(self, predicted: Predicted, clock: Callable[[], float]) -> None:
        self._predicted = predicted
        self._clock = clock
        self._begun: dict[int, _Begun] = {}

    def begin(self, number: int, wave: Wave) -> None:
        """Note that a wave begins now."""
        names = {cell.name for cell in wave}
        self._begun[number] = _Begun(self._clock(), self._sum(wave), len(wave), names)

    def hear(self, news: News) -> None:
        """Note the end of a cell; other news says nothing about times."""
        if not isinstance(news, Ended) or news.wave not in self._begun:
            return
        wave = self._begun[news.wave]
        wave.living.discard(news.cell.name)
        wave.clean = wave.clean and news.result.status.finished
        if not wave.living and wave.seconds is None:
            wave.seconds = self._clock() - wave.at

    def seconds(self, cells: Sequence[Cell]) -> float | None:
        """Return the seconds that cells which take turns will take together; None if nothing is known."""
        ended = [(one, one.seconds) for one in self._begun.values() if one.seconds is not None]
        if (predicted := self._sum(cells)) is not None:
            known = [(took, one.predicted) for one, took in ended if one.clean and one.predicted]
            return predicted * (sum(took for took, _ in known) / sum(said for _, said in known) if known else 1.0)
        if not ended:
            return None
        return len(cells) * sum(took for _, took in ended) / sum(one.cells for one, _ in ended)

    def _sum(self, cells: Iterable[Cell]) -> float | None:
        """Return the predicted seconds of some cells; None if those of one are not known."""
        total = 0.0
        for cell in cells:
            if (seconds := self._predicted(cell)) is None:
                return None
            total += seconds
        return total


def process_seconds(run: ResolvedRun, step_seconds: float, eval_batches: int, done: int = 0) -> float:
    """Return the predicted time of a process, from its start to its end; `eval_batches` are those of an evaluation.

    `done` are the steps that a trunk has done for it.
    """
    return START_SECONDS + step_seconds * (_steps(run, step_seconds, eval_batches) - done)


def _steps(run: ResolvedRun, step_seconds: float, eval_batches: int) -> float:
    """Return the steps of a run and its evaluations, as a number of steps."""
    training = run.training
    steps: float = training.steps
    if training.tokens is not None:
        steps = min(steps, training.tokens / run.tokens_per_step)
    if training.seconds is not None:
        steps = min(steps, training.seconds / step_seconds)
    evaluations = 1 + (steps // training.eval_interval if training.eval_interval else 0)
    return steps + evaluations * eval_batches * _FORWARD


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
