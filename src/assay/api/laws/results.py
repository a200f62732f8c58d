"""A fitted law and its predictions as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from assay.report.notebook import Shown
from assay.scaling.fitted import FittedLaw, Prediction

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class LawFit(FittedLaw, Shown):
    """A fitted law with its intervals and its test."""

    def __repr__(self) -> str:
        constants = ", ".join(f"{name}={value:.4g}" for name, value in self.law.printed.items())
        return f"<{self.law.form.name} of {len(self.fit.points)} points: {constants}>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per constant, indexed by its symbol.

        Columns are `fitted`, `low` and `high` (bootstrap, 95 %), and `identified`. With a profile there are
        `profile_low` and `profile_high`, NaN at an open end. With points left out, `all_points` is the fit of all.
        """
        import pandas

        ends = self.intervals
        columns: dict[str, dict[str, float | bool | None]] = {
            "fitted": dict(self.law.printed),
            "low": {name: low for name, (low, _) in ends.items()},
            "high": {name: high for name, (_, high) in ends.items()},
            "identified": {name: name not in self.unidentified for name in ends},
        }
        if self.profile is not None:
            columns["profile_low"] = {name: low for name, (low, _) in self.profile.intervals.items()}
            columns["profile_high"] = {name: high for name, (_, high) in self.profile.intervals.items()}
        if self.undropped is not None:
            columns["all_points"] = dict(self.undropped.law.printed)
        return pandas.DataFrame(columns).rename_axis("constant")

    def plot(self) -> "Figure":
        """Return a figure of the losses with those of the law, and of the residuals."""
        from assay.report.laws import law_figure

        return law_figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.laws import fit_report

        return fit_report(self)


class LossAnswer(Prediction, Shown):
    """Predicted losses with their intervals."""

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per prediction: the question, `loss`, `low`, `high`, `beyond`, `marked`."""
        import pandas

        asked = {name: getattr(self.points, name) for name in self.law.form.needs}
        figures = {name: getattr(self, name) for name in ("loss", "low", "high", "beyond", "marked")}
        return pandas.DataFrame(asked | figures)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.laws import prediction_report

        return prediction_report(self)
