"""Loss-scaling part of a trace: the scale in force, and the factors by which losses were multiplied."""

from assay.config.base import Frozen


class Scaling(Frozen):
    """Loss scale of one step."""

    value: float = 1.0
    """Scale in force when the step began."""
    losses: int = 0
    """Number of losses that were scaled."""
    factors: tuple[float, ...] = ()
    """Distinct ratios of a scaled loss to the loss."""
    due: tuple[float, float] | None = None
    """Least and largest scale that are due, from the initial value, skipped updates and growth; None: unknown."""
