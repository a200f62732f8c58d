"""The seconds that cells will take: as predicted, times how much longer the finished waves took than predicted.

Without predictions it is the mean time of the finished cells. Waves in which a cell failed do not correct the
predictions, since such a cell ended early.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.config.run import ResolvedRun
from assay.executors.base import Ended, News, Wave
from assay.records.study import Cell

Predicted = Callable[[Cell], float | None]
"""Returns the predicted seconds of a cell from its start to its end; None if they are not known."""


START_SECONDS = 6.0
"""From the start of a process to its first step, and from its last step to its end; measured on two cores."""

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
