"""Whether a step fits a device: the interval of what it needs against the memory that is there."""

from enum import StrEnum

from assay.cost.simulation.reserved import Interval


class Fit(StrEnum):
    """Whether a need of which only bounds are known fits."""

    YES = "fits"
    MAYBE = "may fit"
    """The lower bound fits, and the upper one does not."""
    NO = "does not fit"


def fit(need: Interval, memory_bytes: int) -> Fit:
    """Return whether the bytes of a need fit into those of a device."""
    if need.high <= memory_bytes:
        return Fit.YES
    return Fit.MAYBE if need.low <= memory_bytes else Fit.NO
