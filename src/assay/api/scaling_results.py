"""Laws, answers and studies of scaling as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.report.notebook import Shown
from assay.scaling import scaling_study as studied
from assay.scaling.batch import Batching
from assay.scaling.fitted import FittedLaw, Prediction
from assay.scaling.optimal import Growths, LawAnswers
from assay.scaling.scaling_study import ScalingAnswer, StudyPoint

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


@dataclass(frozen=True, repr=False)
class LawOptima(Shown, LawAnswers):
    """The best size and data by each law."""

    def __repr__(self) -> str:
        return f"<optima of {len(self.answers)} laws for {self.value:g} {self.quantity}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of every law, as `--json` prints them."""
        from assay.report.optimal import optimal_values

        return optimal_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per law, indexed by `law`; figures of a refused answer are missing."""
        import pandas

        return pandas.json_normalize([{"law": name, **one} for name, one in self.to_dict().items()]).set_index("law")

    def plot(self) -> "Figure | None":
        """Return a figure of each law's optimal size by compute, with the answers as points."""
        from assay.report.optimal import figure

        return figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.optimal import optimal_report

        return optimal_report(self)


@dataclass(frozen=True, repr=False)
class Grown(Shown, Growths):
    """Growth of the best size and data with compute, by each law."""

    def __repr__(self) -> str:
        return f"<growth by {len(self.answers)} laws for {self.times:g} times the compute>"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of every law, as `--json` prints them."""
        from assay.report.optimal import growth_values

        return growth_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per law, indexed by `law`."""
        import pandas

        return pandas.json_normalize([{"law": name, **one} for name, one in self.to_dict().items()]).set_index("law")

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.optimal import growth_report

        return growth_report(self)


@dataclass(frozen=True, repr=False)
class BatchSizes(Shown, Batching):
    """A critical batch size, and what batch sizes around it take."""

    def __repr__(self) -> str:
        return f"<critical batch size {self.critical.size:.3g} {self.critical.unit}>"

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, as `--json` prints them."""
        from assay.report.batch import batch_values

        return batch_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per batch size, indexed by `batch`."""
        import pandas

        return pandas.DataFrame([one._asdict() for one in self.rows]).set_index("batch")

    def plot(self) -> "Figure | None":
        """Return a figure of steps and examples by batch size, relative to the least."""
        from assay.report.batch import batch_figure

        return batch_figure(self)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.batch import batch_report

        return batch_report(self)


class StudyPoints(tuple[StudyPoint, ...]):
    """Points of a study, by compute and size."""

    def __new__(cls, points: Iterable[StudyPoint]) -> "StudyPoints":
        """Return the points as a tuple."""
        return super().__new__(cls, tuple(points))

    @property
    def of_law(self) -> "StudyPoints":
        """The points without those that only test the learning rate."""
        return StudyPoints(one for one in self if one.role != "rate")

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row for each point."""
        return studied.to_frame(self)

    def to_csv(self) -> str:
        """Return the points as CSV, which `assay scaling fit` reads."""
        return studied.to_csv(self)


class ScalingResult(Shown, ScalingAnswer):
    """Answer of a study of scaling."""

    def __repr__(self) -> str:
        return f"<scaling study {self.record.id}: {len(self.fitted)} runs fitted, {len(self.predictions)} predicted>"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row for each run."""
        return studied.to_frame(self.points)

    def plot(self) -> "Figure | None":
        """Return the figure of losses in normalised compute, with the held-out run."""
        from assay.report import view

        return view(self).figure()

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report import view

        return view(self).blocks()
