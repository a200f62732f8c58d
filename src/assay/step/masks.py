"""Dropout's part of a trace: the masks of one step, counted."""

from assay.config.base import Frozen


class Masks(Frozen):
    """All dropout masks of one step that operators show."""

    drawn: int = 0
    """Masks drawn in forward."""
    elements: int = 0
    zeros: int = 0
    repeated: int = 0
    """Masks drawn in forward that are an earlier one of the same step again; small masks, which may agree, left out."""
    again: int = 0
    """Masks drawn when a forward ran again in backward."""
    unequal: int = 0
    """Masks drawn again that are none of the forward's."""
