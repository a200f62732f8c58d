"""Measured, predicted, planned and recommended steps as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from assay.advise.advice import Advice
from assay.advise.placed import LayoutAdvice
from assay.config.base import absolute
from assay.cost.simulation.timeline import Timeline
from assay.errors import UsageError
from assay.estimator.estimate import Estimate
from assay.estimator.every_rank import EveryRank
from assay.estimator.projection import Projection
from assay.records.anatomy import Anatomy
from assay.records.own import OwnStep, TracedPeak
from assay.report.blocks import amount
from assay.report.notebook import Shown
from assay.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from matplotlib.figure import Figure

    from assay.api.run_results import StudyResult
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
        from assay.report.curves import stage_memory

        return stage_memory(self.to_frame().drop(columns="parameters"))

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.plan import plan_report

        return plan_report(self)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


class MeasuredOwnStep(Shown, OwnStep):
    """Measured step of a user's own."""

    @classmethod
    def of(cls, step: OwnStep) -> "MeasuredOwnStep":
        """Return a record as a result of the API."""
        return cls.model_construct(step.model_fields_set, **dict(step))

    def __repr__(self) -> str:
        time = format_seconds(self.step_seconds.median)
        return f"<{self.program.title}: {amount(self.memory.tensors_peak_bytes)} of tensors, {time} a step>"

    def __str__(self) -> str:
        from assay.report.kit.terminal import plain_text

        return plain_text(self.report())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return {**self.model_dump(mode="json"), "flops": dict(self.flops), "tokens_per_second": self.tokens_per_second}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per operator, phase and dtype: count, FLOPs and bytes of one step."""
        import pandas

        return pandas.DataFrame([one.model_dump(mode="json") for one in self.operations])

    def plot(self) -> "Figure | None":
        """Return a figure of time by module and class of operator; None if the step was not taken apart."""
        from assay.report.anatomy import figure

        return None if self.anatomy is None else figure(self.anatomy)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.measure import own_step_report

        return own_step_report(self)


class TracedStep(Shown, TracedPeak):
    """Peak of a step that was traced on fake tensors."""

    @classmethod
    def of(cls, traced: TracedPeak) -> "TracedStep":
        """Return a record as a result of the API."""
        return cls.model_construct(traced.model_fields_set, **dict(traced))

    def __repr__(self) -> str:
        return f"<traced step: {amount(self.peak_bytes)} at {self.instant}>"

    def __str__(self) -> str:
        from assay.report.kit.terminal import plain_text

        return plain_text(self.report())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return self.model_dump(mode="json")

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per part of the peak: `part` and `bytes`."""
        import pandas

        return pandas.DataFrame(self.parts.items(), columns=["part", "bytes"])

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.estimate import traced_report

        return traced_report(self)


def values_of(found: Advice | LayoutAdvice, kind: type) -> dict[str, Any]:
    """Return the fields of advice, for a result that adds to them."""
    return {each.name: getattr(found, each.name) for each in fields(kind)}


@dataclass(frozen=True, repr=False)
class Recommendation(Shown, Advice):
    """Advice, and the comparison that verified it."""

    verified: "StudyResult | None" = None
    tokens: float | None = None
    """Tokens of a whole training; None if no budget was given."""
    price: float | None = None
    """Money for an hour of the device."""

    def __repr__(self) -> str:
        return f"<recommended: {self.recommended.title}, of {self.counts.candidates} stacks>"

    @property
    def measured(self) -> dict[str, float]:
        """Measured seconds of a step by the stack, from the verification; empty without one."""
        rows = () if self.verified is None else self.verified.rows
        times = {row.treatment: row.metrics.get("step_seconds") for row in rows}
        return {title: time for title, time in times.items() if isinstance(time, float)}

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        from assay.report.recommend import kept_order

        training = None if self.tokens is None else self.training(self.tokens, self.price).to_dict()
        found: dict[str, Any] = {"training": training, "verified": None}
        if self.verified is not None:
            held = kept_order(self, self.measured)
            found["verified"] = {"study": self.verified.record.id, "step_seconds": self.measured, "order_held": held}
        return super().to_dict() | found

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per stack of the frontier: tokens/s or FLOPs, bytes, numerics."""
        import pandas

        return pandas.DataFrame([self.plain(one) for one in self.frontier])

    def plot(self) -> "Figure | None":
        """Return a figure of tokens/s against memory."""
        from assay.report.recommend import figure

        return figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.recommend import advice_report

        training = None if self.tokens is None else self.training(self.tokens, self.price)
        return advice_report(self, training, self.measured)


@dataclass(frozen=True, repr=False)
class LayoutRecommendation(Shown, LayoutAdvice):
    """Advice on a layout over several GPUs that may be absent."""

    tokens: float | None = None
    """Tokens of a whole training; None if no budget was given."""
    price: float | None = None
    """Money for an hour of one GPU."""

    def __repr__(self) -> str:
        return f"<recommended: {self.recommended.title}, of {self.candidates} layouts>"

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        training = None if self.tokens is None else self.training(self.tokens, self.price).to_dict()
        return super().to_dict() | {"training": training}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per layout of the frontier: tokens/s, bytes, shares of waiting."""
        import pandas

        return pandas.json_normalize([one.to_dict() for one in self.frontier])

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.recommend import layout_report

        return layout_report(self, None if self.tokens is None else self.training(self.tokens, self.price))
