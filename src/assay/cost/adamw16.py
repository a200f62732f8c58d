"""`optimizers.adamw16` as the ledger sees it: moments in the dtype of the weight, one tensor in float32 at a time."""

from dataclasses import dataclass
from typing import ClassVar

from assay.cost.tensors import DTYPE_BYTES
from assay.cost.updates import AdamW, Instant, Pieces, in_order

_LIFTED = 4
"""Gradient, two moments and weight of the tensor that is updated."""


@dataclass(frozen=True)
class AdamW16(AdamW):
    """State as torch's AdamW keeps it: of weights in 16 bits, in 16 bits."""

    passes: ClassVar = 71.0
    launches: ClassVar = 18.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """One tensor after the other, lifted."""
        width = _LIFTED * DTYPE_BYTES["float32"]
        return tuple(Instant("AdamW16", one.name, width * one.elements) for one in in_order(pieces))
