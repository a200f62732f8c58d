"""The view of a value: what a reader is shown of it, made once for terminal, page, JSON, notebook and dashboard.

A view is looked up by the type of its value. It keeps what it has computed, so all that show it share one answer.
"""

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from assay.report.blocks import Block

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from pydantic import BaseModel

    from assay.analysis.comparison import Comparison
    from assay.scaling.scaling_study import ScalingAnswer

Found = TypeVar("Found")
_VIEWS = {
    "absent.allocator_runs.AllocatorRuns": "allocators.AllocatorsView",
    "absent.largest.LargestFit": "absent.LargestView",
    "absent.ranks_answer.RanksAnswer": "absent.RanksView",
    "absent.script_answer.AbsentAnswer": "absent.AbsentView",
    "advise.advice.Advice": "recommend.AdviceView",
    "advise.placed.LayoutAdvice": "recommend.LayoutAdviceView",
    "analysis.accuracy.Accuracy": "accuracy.AccuracyView",
    "analysis.catalogue.Catalogue": "catalogue.CatalogueView",
    "analysis.comparison.Comparison": "study.view.view",
    "analysis.factors.machines.Machines": "studies.MachinesView",
    "analysis.step_ratio.GateTimes": "gate_times.GateTimesView",
    "config.mesh.Mesh": "mesh.MeshView",
    "estimator.capacity.Capacity": "capacity.CapacityView",
    "estimator.cost.TrainingCost": "cost.CostView",
    "estimator.every_rank.EveryRank": "estimate.EstimateView",
    "estimator.inference.Inference": "inference.InferenceView",
    "estimator.projection.Projection": "plan.PlanView",
    "fake.peak.GpuPeak": "gpu_peak.GpuPeakView",
    "launch.gate.GateAnswer": "gate.GateView",
    "launch.token_budget.TokenBudget": "token_budget.TokenBudgetView",
    "records.anatomy.Anatomy": "anatomy.AnatomyView",
    "records.gradients.GradientProbe": "gradients.GradientsView",
    "records.own.OwnStep": "measure.OwnStepView",
    "records.own.TracedPeak": "estimate.TracedView",
    "records.run.RunResult": "run.RunView",
    "scaling.approaches.Envelope": "frontiers.EnvelopeView",
    "scaling.approaches.IsoFlop": "frontiers.IsoFlopView",
    "scaling.batch.Batching": "batch.BatchView",
    "scaling.branch_saving.BranchSaving": "saved_work.BranchSavingView",
    "scaling.fitted.FittedLaw": "laws.FitView",
    "scaling.fitted.Prediction": "predicted_loss.PredictedLossView",
    "scaling.optimal.Growths": "optimal.GrowthView",
    "scaling.optimal.LawAnswers": "optimal.OptimalView",
    "scaling.scaling_study.ScalingAnswer": "scaling_study_view.ScalingView",
    "studies.execution.study_listing.StudyStanding": "studies.StandingView",
    "studies.isoflop.plan.ScalingPlan": "scaling_study.ScalingPlanView",
    "studies.library.LibraryEntry": "studies.LibraryEntryView",
    "studies.outlook.Outlook": "studies.OutlookView",
    "studies.predicted.PredictedStudy": "studies.PredictedStudyView",
}
"""View of each type of `assay`, in a module of `assay.report`. Names, so that nothing is loaded that is not shown."""


class Shown(Generic[Found]):
    """The report, the JSON, the figure and the table of a value."""

    def __init__(self, found: Found) -> None:
        self.found = found

    def blocks(self) -> Iterable[Block]:
        """Return the whole report, as a terminal and a notebook show it."""
        raise NotImplementedError

    def values(self) -> Any:
        """Return plain values for JSON."""
        raise NotImplementedError

    def figure(self, name: str = "") -> "Figure | None":
        """Return the main figure, or another one by its name; None if there is nothing to draw."""
        return None

    def frame(self) -> "pandas.DataFrame":
        """Return the figures as a table for a notebook."""
        raise NotImplementedError


def plain_record(record: "BaseModel") -> Any:
    """Return a record as values that JSON can express."""
    return json.loads(record.model_dump_json())


class View(Shown[Any]):
    """The result of a study, as a reader is shown it."""

    comparison: "Comparison"
    table: "Comparison | None" = None
    """The rows that a terminal shows as a table above the rest; None if the report has its own."""

    def printed(self) -> Iterable[Block]:
        """Return what a terminal prints below the table."""
        raise NotImplementedError

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines."""
        raise NotImplementedError

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the page's template, and its content."""
        raise NotImplementedError

    def frame(self) -> "pandas.DataFrame":
        """Return a row per treatment."""
        return self.comparison.to_frame()


class Result:
    """A value that shows itself to the program or notebook that holds it."""

    @classmethod
    def from_value(cls, value: Any, **more: Any) -> Self:
        """Return a value of a domain as a result of this kind, with fields of its own."""
        from pydantic import BaseModel

        if isinstance(value, BaseModel):
            return cast(Self, cast(Any, cls).model_construct(value.model_fields_set, **dict(value), **more))
        made = cls.__new__(cls)
        vars(made).update(vars(value), **more)
        return made

    def view(self) -> Shown[Any]:
        """Return what a reader is shown of it."""
        return _by_type(self)

    def report(self) -> Iterable[Block]:
        """Return the report as `assay` prints it."""
        return self.view().blocks()

    def plot(self) -> "Figure | None":
        """Return the figure; None if there is nothing to draw."""
        return self.view().figure()

    def to_frame(self) -> "pandas.DataFrame":
        """Return the figures as a data frame."""
        return self.view().frame()

    def to_dict(self) -> Any:
        """Return the figures as plain values, as `--json` prints them."""
        return self.view().values()

    def _repr_html_(self) -> str:
        from assay.report.notebook import html

        return html(self.report(), self.plot())


@overload
def view(value: "View | Comparison | ScalingAnswer") -> View: ...
@overload
def view(value: Any) -> Shown[Any]: ...
def view(value: Any) -> Shown[Any]:
    """Return the view of a value, and a view as it is. Raises `TypeError` for a value that has none."""
    if isinstance(value, Shown):
        return value
    return value.view() if isinstance(value, Result) else _by_type(value)


def _by_type(value: Any) -> Shown[Any]:
    for one in type(value).__mro__:
        if name := _VIEWS.get(f"{one.__module__}.{one.__qualname__}".removeprefix("assay.")):
            module, _, made = name.rpartition(".")
            found: Shown[Any] = getattr(import_module(f"assay.report.{module}"), made)(value)
            return found
    raise TypeError(f"a {type(value).__name__} has no view")
