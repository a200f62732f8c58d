"""Points and answers of studies of scaling, for programs and notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from assay.report.notebook import Shown
from assay.scaling import scaling_study as studied
from assay.scaling.scaling_study import ScalingAnswer, StudyPoint

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.report.blocks import Block


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
