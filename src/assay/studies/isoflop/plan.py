"""A study of scaling before it runs, with what it was designed from."""

from dataclasses import dataclass
from functools import cached_property

from assay.studies.isoflop.budget import DesignLimits, PlannedRun, Wanted, runs_of, study_seconds
from assay.studies.isoflop.here import Here
from assay.studies.kinds.isoflop import Isoflop


@dataclass(frozen=True)
class ScalingPlan:
    """A study of scaling before it runs."""

    study: Isoflop
    here: Here
    wanted: Wanted
    limits: DesignLimits
    budget_seconds: float
    seconds: float
    """Predicted time of the whole."""

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """Every run in its order, the control's second ones included."""
        return runs_of(self.study, self.wanted, self.limits)

    @property
    def separate_seconds(self) -> float:
        """Predicted time of the whole, if every run trained all of its steps itself."""
        return study_seconds(self.study.model_copy(update={"branches": False}), self.wanted, self.limits)
