"""Dropout part of a trace: counts of the masks of one step."""

from assay.config.base import Frozen


class Masks(Frozen):
    """Counts of one step's dropout masks, without those drawn in compiled code, CUDA graphs or fused attention."""

    drawn: int = 0
    """Masks drawn in forward."""
    elements: int = 0
    zeros: int = 0
    repeated: int = 0
    """Forward masks equal to an earlier one of the step. Small masks, which may agree by chance, are excluded."""
    again: int = 0
    """Masks drawn in recomputed forwards."""
    unequal: int = 0
    """Recomputed masks that match none of the forward's."""
    digests: tuple[int, ...] = ()
    """Checksums of the forward masks, without small ones, to be compared with another step's."""
