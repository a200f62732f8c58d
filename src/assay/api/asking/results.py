"""Answers of scaling laws as the API returns them, for programs and notebooks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.report.notebook import Shown
from assay.scaling.batch import Batching
from assay.scaling.optimal import Growths, LawAnswers

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


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
