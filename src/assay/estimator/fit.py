"""Whether a step fits a device: the interval of what it needs against the memory that is there."""

from typing import Literal

from assay.cost.simulation.reserved import Interval

Verdict = Literal["fits", "may fit", "does not fit"]


def verdict(need: Interval, memory_bytes: int) -> Verdict:
    """Return whether a need goes into some memory, also at the higher of its bounds."""
    if need.high <= memory_bytes:
        return "fits"
    return "may fit" if need.low <= memory_bytes else "does not fit"
