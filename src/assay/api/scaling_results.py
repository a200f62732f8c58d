"""Results of scaling that a program or a notebook holds; they load numpy and scipy, which other results do not need."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from assay.report.kit.view import Result
from assay.scaling import scaling_study as studied
from assay.scaling.batch import Batching
from assay.scaling.fitted import FittedLaw, Prediction
from assay.scaling.optimal import Growths, LawAnswers
from assay.scaling.scaling_study import ScalingAnswer, StudyPoint

if TYPE_CHECKING:
    import pandas


class LawFit(FittedLaw, Result):
    """A fitted law with its intervals and its test.

    `to_frame()` has a row per constant, indexed by its symbol: `fitted`, `low` and `high` (bootstrap, 95 %), and
    `identified`. With a profile there are `profile_low` and `profile_high`, NaN at an open end. With points left out,
    `all_points` is the fit of all. `plot()` draws the losses with those of the law, and the residuals.
    """

    def __repr__(self) -> str:
        constants = ", ".join(f"{name}={value:.4g}" for name, value in self.law.printed.items())
        return f"<{self.law.form.name} of {len(self.fit.points)} points: {constants}>"


class LossAnswer(Prediction, Result):
    """Predicted losses with their intervals.

    `to_frame()` has a row per prediction: the question, `loss`, `low`, `high`, `beyond`, `marked`.
    """


class LawOptima(LawAnswers, Result):
    """The best size and data by each law.

    `to_frame()` has a row per law, indexed by `law`; figures of a refused answer are missing. `plot()` draws each law's
    optimal size by compute, with the answers as points.
    """

    def __repr__(self) -> str:
        return f"<optima of {len(self.answers)} laws for {self.value:g} {self.quantity}>"


class Grown(Growths, Result):
    """Growth of the best size and data with compute, by each law; `to_frame()` has a row per law."""

    def __repr__(self) -> str:
        return f"<growth by {len(self.answers)} laws for {self.times:g} times the compute>"


class BatchSizes(Batching, Result):
    """A critical batch size, and what batch sizes around it take.

    `to_frame()` has a row per batch size, indexed by `batch`. `plot()` draws steps and examples, relative to the least.
    """

    def __repr__(self) -> str:
        return f"<critical batch size {self.critical.size:.3g} {self.critical.unit}>"


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


class ScalingResult(ScalingAnswer, Result):
    """Answer of a study of scaling; `to_frame()` has a row for each run, and `plot()` draws losses by compute."""

    def __repr__(self) -> str:
        return f"<scaling study {self.record.id}: {len(self.fitted)} runs fitted, {len(self.predictions)} predicted>"
