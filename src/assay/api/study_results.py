"""Answer of a study as the API returns it, for programs and notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from assay.analysis.comparison import Comparison
from assay.report.notebook import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class StudyResult(Shown, Comparison):
    """Comparison of a study's cells."""

    @classmethod
    def of(cls, comparison: Comparison) -> "StudyResult":
        """Return a comparison as a result of the API."""
        return cls.model_construct(comparison.model_fields_set, **dict(comparison))

    def __repr__(self) -> str:
        return f"<study {self.record.id}: baseline and {len(self.rows)} rows, {len(self.record.cells)} cells>"

    def plot(self, figure: Literal["changes", "losses", "predictions"] = "changes") -> "Figure | None":
        """Return a figure of the comparison's page: changes by treatment, losses by step, or errors of predictions.

        Returns None if there is nothing to draw.
        """
        from assay.report.page.figures import FIGURES
        from assay.report.page.theme import printed

        drawn = FIGURES[figure](self)
        return None if drawn is None else printed(drawn)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.notebook.comparison import comparison_report

        return comparison_report(self)
