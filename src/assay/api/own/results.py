"""Measured and traced steps as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from assay.records.own import OwnStep, TracedPeak
from assay.report.blocks import amount
from assay.report.notebook import Shown
from assay.units import format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


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
