"""A study of scaling before it runs, with what it was designed from."""

from dataclasses import dataclass

from assay.studies.isoflop.budget import DesignLimits, Wanted
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
