"""Recommendations: advice for one device with its verification, and advice on a layout over several GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from assay.advise.advice import Advice
from assay.advise.placed import LayoutAdvice
from assay.report.notebook import Shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.api.study_results import StudyResult
    from assay.report.blocks import Block


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
