"""Measured, predicted and planned steps as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from assay.config.paths import absolute
from assay.cost.simulation.timeline import Timeline
from assay.errors import UsageError
from assay.estimator.estimate import Estimate
from assay.estimator.projection import Projection
from assay.estimator.ranks import EveryRank
from assay.records.anatomy import Anatomy
from assay.report.notebook import Shown
from assay.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class MeasuredStep(Shown, Anatomy):
    """Measured step, divided into parts."""

    @classmethod
    def of(cls, anatomy: Anatomy) -> "MeasuredStep":
        """Return an anatomy as a result of the API."""
        return cls.model_construct(anatomy.model_fields_set, **dict(anatomy))

    def __repr__(self) -> str:
        return f"<measured step: {self.title}>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per module, phase and class of operator: count, seconds, FLOPs and bytes."""
        import pandas

        return pandas.DataFrame([part.model_dump(mode="json") for part in self.parts])

    def perfetto(self, path: "Path | str") -> None:
        """Write the operators as a trace for ui.perfetto.dev, compressed if the name ends in ``.json.gz``.

        Raises `UsageError` if they were not asked for, or for another ending, and `StorageError` if the disk refuses.
        """
        from assay.report.anatomy import check_trace, write_trace

        where = absolute(path)
        check_trace(where)
        if not self.operators:
            raise UsageError("the step was measured without its operators; measure it with operators=True")
        write_trace(self, where)

    def plot(self) -> "Figure | None":
        """Return a figure of time by module and class of operator, and of shares of the whole."""
        from assay.report.anatomy import figure

        return figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.anatomy import anatomy_report

        return anatomy_report(self)


@dataclass(frozen=True, repr=False)
class PredictedStep(Shown, Estimate):
    """Predicted step of the rank with the highest peak."""

    every: EveryRank
    """Predictions of all ranks."""

    @classmethod
    def of(cls, every: EveryRank) -> "PredictedStep":
        """Return the prediction of the fullest rank."""
        fullest = every.fullest
        return cls(**_fields(fullest), every=every)

    @property
    def timeline(self) -> Timeline:
        """Live bytes at each instant of the step."""
        return self.every.fullest.timeline

    def __repr__(self) -> str:
        return f"<predicted step: peak of tensors {format_bytes(self.timeline.peak.nbytes)}>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per instant of the step, in order: `instant` and live `bytes`.

        Each is the highest instant of its part of the step.
        """
        import pandas

        return pandas.DataFrame({"instant": str(moment), "bytes": moment.nbytes} for moment in self.timeline.instants)

    def plot(self) -> "Figure | None":
        """Return a figure of live memory by instant."""
        from assay.report.curves import memory

        return memory(self.timeline.instants)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.estimate import estimate_report

        return estimate_report(self.every)


@dataclass(frozen=True, repr=False)
class PlannedStep(Shown, Projection):
    """Planned step on absent machines."""

    @classmethod
    def of(cls, projection: Projection) -> "PlannedStep":
        """Return a projection as a result of the API."""
        return cls(**_fields(projection))

    def __repr__(self) -> str:
        return f"<planned step on {self.cluster}: {format_bytes(self.plan.memory_bytes)} on the fullest rank>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per pipeline stage: bytes that each of its ranks holds, by kind."""
        import pandas

        return pandas.DataFrame([vars(held) for held in self.plan.held]).rename_axis("stage")

    def plot(self) -> "Figure":
        """Return a figure of planned memory by pipeline stage and kind."""
        from assay.report.curves import held

        return held(self.to_frame().drop(columns="parameters"))

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.plan import plan_report

        return plan_report(self)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
