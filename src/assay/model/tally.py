"""The number of targets that a loss counted, which is known only after its forward if it leaves some of them out."""

from dataclasses import dataclass

from torch import Tensor

Count = Tensor | float
"""A number of targets; a tensor stays on the device until the host reads it with the figures of its step."""


@dataclass(eq=False)
class Tally:
    """Targets that a user's own loss counted, in its last forward and in all forwards of a step."""

    last: Count = 0
    """Targets of the last forward."""
    step: Count = 0
    """Targets of all micro-batches of the last step."""


def host(count: Count) -> float:
    """Return a count as a number of the host, which waits for the device."""
    return count.item() if isinstance(count, Tensor) else count
