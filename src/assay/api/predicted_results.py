"""A study that is predicted on a GPU as the API returns it, for programs and notebooks."""

from typing import TYPE_CHECKING, Any

from assay.report.notebook import Shown
from assay.studies.predicted import PredictedStudy

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


class PredictedAnswer(Shown, PredictedStudy):
    """A predicted study."""

    @classmethod
    def of(cls, found: PredictedStudy) -> "PredictedAnswer":
        """Return a predicted study as a result of the API."""
        return cls(**{name: getattr(found, name) for name in PredictedStudy.__dataclass_fields__})

    def __repr__(self) -> str:
        rows = len(self.named) - 1
        return f"<study predicted on {self.device}: baseline and {rows} row{'s' if rows > 1 else ''}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values."""
        from assay.report.study.predicted import predicted_study_values

        return predicted_study_values(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a line for each row: its levels, and every figure that is compared."""
        import pandas

        from assay.analysis.predicted_rows import COMPARED

        known = [(row.label, dict(row.levels), row.found) for row in self.named if row.found is not None]
        return pandas.DataFrame(
            {"row": label, **levels, **{one.name: one.of(found) for one in COMPARED}} for label, levels, found in known
        )

    def plot(self) -> "Figure | None":
        """Return heat maps of percent changes and of deviations by two factors; None for a comparison."""
        from assay.report.kit.drawing import printed, together
        from assay.report.study.predicted import maps

        drawn = together(maps(self))
        return None if drawn is None else printed(drawn)

    def report(self) -> "Iterable[Block]":
        """Return the report as `assay` prints it."""
        from assay.report.study.predicted import predicted_study_report

        return predicted_study_report(self)
