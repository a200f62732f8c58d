"""Loss scaling's part of a trace: the scale in force, and by what losses were really multiplied."""

from assay.config.base import Frozen


class Scaling(Frozen):
    """The scale of one step."""

    value: float = 1.0
    """Scale in force when the step began."""
    losses: int = 0
    """Losses that were passed through the scale."""
    factors: tuple[float, ...] = ()
    """Distinct ratios of a scaled loss to the loss."""
    due: tuple[float, float] | None = None
    """Least and largest scale that follow from the start value, skipped updates and growth; None: unknown."""
