"""Answer of a study as the API returns it, for programs and notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from assay.analysis.comparison import Comparison
from assay.report.notebook import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.report.blocks import Block

Drawn = Literal["changes", "memory", "seconds", "step_times", "losses", "distances", "predictions"]
"""Names of the figures of a page."""


class StudyResult(Shown, Comparison):
    """Comparison of a study's cells."""

    @classmethod
    def of(cls, comparison: Comparison) -> "StudyResult":
        """Return a comparison as a result of the API."""
        return cls.model_construct(comparison.model_fields_set, **dict(comparison))

    def __repr__(self) -> str:
        return f"<study {self.record.id}: baseline and {len(self.rows)} rows, {len(self.record.cells)} cells>"

    def plot(self, figure: Drawn = "changes") -> "Figure | None":
        """Return a figure of the comparison's page: changes by treatment, memory over a step, losses by second or step.

        `step_times` is their distribution, `distances` has those of losses from the baseline's, and `predictions` the
        errors of predicted peaks. Returns None if there is nothing to draw.
        """
        from assay.report.study.view import StudyView

        return StudyView(self).figure(figure)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.study.view import StudyView

        return StudyView(self).blocks()
