"""`optimizers.adamw16` as the ledger sees it: moments in the weight's dtype, one tensor at a time in float32."""

from dataclasses import dataclass
from typing import ClassVar

from assay.cost.optimizers.updates import AdamW, Instant, Pieces, beside, in_order

_LIFTED = 4
"""Number of float32 copies during an update: gradient, two moments and weight."""


@dataclass(frozen=True)
class AdamW16(AdamW):
    """AdamW with torch's state: the moments of a 16-bit weight are in 16 bits."""

    passes: ClassVar = 71.0
    launches: ClassVar = 18.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Float32 copies of one tensor after the other, and a number that divides one."""
        lifted = (one.cast("float32") for one in in_order(pieces))
        return tuple(Instant("AdamW16", one.name, _LIFTED * one.nbytes, beside(one)) for one in lifted)
