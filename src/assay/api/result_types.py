"""Results that a program or a notebook holds: values of the domains that show themselves.

Each has `report()`, `plot()`, `to_frame()` and `to_dict()`, which show what `report.view` knows of its type.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import PrivateAttr

from assay.advise.advice import Advice
from assay.advise.placed import LayoutAdvice
from assay.analysis.accuracy import Accuracy
from assay.analysis.comparison import Comparison
from assay.config.base import absolute
from assay.config.home import Home
from assay.cost.simulation.timeline import Timeline
from assay.errors import UsageError
from assay.estimator.estimate import Estimate
from assay.estimator.every_rank import EveryRank
from assay.estimator.projection import Projection
from assay.records.anatomy import Anatomy
from assay.records.own import OwnStep, TracedPeak
from assay.records.run import RunResult
from assay.report.kit.blocks import amount
from assay.report.kit.view import Result, Shown, view
from assay.store.index import Entry
from assay.studies.predicted import PredictedStudy
from assay.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure

    from assay.estimator.cost import Training
    from assay.report.kit.blocks import Block


class TrainedRun(RunResult, Result):
    """Result of a run, with its steps.

    `to_frame()` has a row per optimizer step, indexed by `step`. Columns are the fields of the step events, such as
    `loss` (nats per token), `learning_rate`, `seconds` and `phase`, and `val_loss` where an evaluation followed the
    step. It raises `UsageError` if the run was removed. `plot()` draws the losses and the learning rate by step; it
    returns None without a step.
    """

    _root: Path = PrivateAttr()
    """Folder of the home in which the run lies."""

    @classmethod
    def in_home(cls, result: RunResult, home: Home) -> "TrainedRun":
        """Return a result whose run lies in `home`."""
        made = cls.from_value(result)
        made._root = home.root
        return made

    def __repr__(self) -> str:
        return f"<run {self.run}: {self.status.value} after {self.steps} steps>"

    def view(self) -> "Shown[RunResult]":
        """Return what a reader is shown of it, with its folder."""
        from assay.report.run import RunView

        return RunView(self, Home(self._root))


class RunTable(list[Entry], Result):
    """Entries of runs, newest first; `to_frame()` has a row per run, with every column of the store's index."""

    def view(self) -> "Shown[Sequence[Entry]]":
        """Return what a reader is shown of it."""
        from assay.report.runs import RunsView

        return RunsView(self)


Drawn = Literal["changes", "memory", "seconds", "step_times", "losses", "distances", "predictions"]
"""Names of the figures of a page."""


class StudyResult(Comparison, Result):
    """Comparison of a study's cells; `to_frame()` has a row per treatment, the two baselines first."""

    def __repr__(self) -> str:
        return f"<study {self.record.id}: baseline and {len(self.rows)} rows, {len(self.record.cells)} cells>"

    def report(self) -> "Iterable[Block]":
        """Return the rows and sections, also of a study of scaling, whose law `assay.api.scaling.answer` fits."""
        from assay.report.study.view import StudyView

        return StudyView(self).blocks()

    def plot(self, figure: Drawn = "changes") -> "Figure | None":
        """Return a figure of the comparison's page: changes by treatment, memory over a step, losses by second or step.

        `step_times` is their distribution, `distances` has those of losses from the baseline's, and `predictions` the
        errors of predicted peaks. Returns None if there is nothing to draw.
        """
        from assay.report.study.view import StudyView

        return StudyView(self).figure(figure)


class PredictedAnswer(PredictedStudy, Result):
    """A predicted study: `to_frame()` has a line for each row, with its levels and every figure that is compared."""

    def __repr__(self) -> str:
        rows = len(self.named) - 1
        return f"<study predicted on {self.device}: baseline and {rows} row{'s' if rows > 1 else ''}>"


class AccuracyLedger(Accuracy, Result):
    """Errors of all predictions in a home.

    `to_frame()` has a row per run and quantity: `run`, `device`, `techniques`, `quantity`, `predicted` and `measured`
    (bytes or seconds), and `error` (a fraction). `plot()` draws predicted against measured figures.
    """

    def __repr__(self) -> str:
        return f"<accuracy of the predictions of {self.runs} runs>"


class MeasuredStep(Anatomy, Result):
    """Measured step, divided into parts.

    `to_frame()` has a row per module, phase and class of operator: count, seconds, FLOPs and bytes. `plot()` draws time
    by module and class, and shares of the whole.
    """

    def __repr__(self) -> str:
        return f"<measured step: {self.title}>"

    def perfetto(self, path: Path | str) -> None:
        """Write the operators as a trace for ui.perfetto.dev, compressed if the name ends in ``.json.gz``.

        Raises `UsageError` if they were not asked for, or for another ending, and `StorageError` if the disk refuses.
        """
        from assay.report.anatomy import check_trace, write_trace

        where = absolute(path)
        check_trace(where)
        if not self.operators:
            raise UsageError("the step was measured without its operators; measure it with operators=True")
        write_trace(self, where)


@dataclass(frozen=True, repr=False)
class PredictedStep(Estimate, Result):
    """Predicted step of the rank with the highest peak.

    `to_frame()` has a row per instant of the step, in order: `instant` and live `bytes`. Each is the highest instant of
    its part of the step. `plot()` draws them.
    """

    every: EveryRank
    """Predictions of all ranks."""

    @property
    def timeline(self) -> Timeline:
        """Live bytes at each instant of the step."""
        return self.every.fullest.timeline

    def __repr__(self) -> str:
        return f"<predicted step: peak of tensors {format_bytes(self.timeline.peak.nbytes)}>"

    def view(self) -> Shown[EveryRank]:
        """Return what a reader is shown of it: the step on every rank."""
        return view(self.every)


class PlannedStep(Projection, Result):
    """Planned step on absent machines.

    `to_frame()` has a row per pipeline stage: bytes that each of its ranks holds, by kind. `plot()` draws them.
    """

    def __repr__(self) -> str:
        return f"<planned step on {self.cluster}: {format_bytes(self.plan.memory_bytes)} on the fullest rank>"


class MeasuredOwnStep(OwnStep, Result):
    """Measured step of a user's own.

    `to_frame()` has a row per operator, phase and dtype: count, FLOPs and bytes of one step. `plot()` draws time by
    module and class of operator; it returns None if the step was not taken apart.
    """

    def __repr__(self) -> str:
        time = format_seconds(self.step_seconds.median)
        return f"<{self.program.title}: {amount(self.memory.tensors_peak_bytes)} of tensors, {time} a step>"

    def __str__(self) -> str:
        from assay.report.kit.blocks import plain_text

        return plain_text(self.report())


class TracedStep(TracedPeak, Result):
    """Peak of a step that was traced on fake tensors; `to_frame()` has a row per part of it."""

    def __repr__(self) -> str:
        return f"<traced step: {amount(self.peak_bytes)} at {self.instant}>"

    def __str__(self) -> str:
        from assay.report.kit.blocks import plain_text

        return plain_text(self.report())


@dataclass(frozen=True, repr=False)
class Recommendation(Result, Advice):
    """Advice, and the comparison that verified it.

    `to_frame()` has a row per stack of the frontier: tokens/s or FLOPs, bytes, numerics. `plot()` draws tokens/s by
    memory.
    """

    verified: StudyResult | None = None
    tokens: float | None = None
    """Tokens of a whole training; None if no budget was given."""
    price: float | None = None
    """Money for an hour of the device."""

    def __repr__(self) -> str:
        return f"<recommended: {self.recommended.title}, of {self.counts.candidates} stacks>"

    def view(self) -> Shown[Advice]:
        """Return what a reader is shown of it, with the training and the comparison."""
        from assay.report.recommend import AdviceView

        return AdviceView(self, _training(self), self.verified)


@dataclass(frozen=True, repr=False)
class LayoutRecommendation(Result, LayoutAdvice):
    """Advice on a layout over several GPUs that may be absent.

    `to_frame()` has a row per layout of the frontier: tokens/s, bytes, shares of waiting.
    """

    tokens: float | None = None
    """Tokens of a whole training; None if no budget was given."""
    price: float | None = None
    """Money for an hour of one GPU."""

    def __repr__(self) -> str:
        return f"<recommended: {self.recommended.title}, of {self.candidates} layouts>"

    def view(self) -> Shown[LayoutAdvice]:
        """Return what a reader is shown of it, with the training."""
        from assay.report.recommend import LayoutAdviceView

        return LayoutAdviceView(self, _training(self))


def _training(found: Recommendation | LayoutRecommendation) -> "Training | None":
    return None if found.tokens is None else found.training(found.tokens, found.price)
