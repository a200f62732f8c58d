"""Adam's relatives as the ledger sees them: the temporaries of their updates, read off torch 2.13's loops.

Over lists (`foreach`) the denominators of a whole group are alive at once. One kernel (`fused`) has no temporaries.
Decay inside the gradient (Adam) makes a sum for every decayed parameter. Moments in bfloat16 are widened one parameter
at a time.
"""

from dataclasses import dataclass
from typing import ClassVar

from assay.cost.operation import Tensor
from assay.cost.optimizers.updates import (
    AdamWUpdate,
    Instant,
    Pieces,
    UpdateRule,
    after_another,
    beside,
    counts,
    groups,
    in_order,
    like,
)


@dataclass(frozen=True)
class FusedAdamWUpdate(AdamWUpdate):
    """One kernel for each group, which reads weight, gradient and moments and writes all but the gradient."""

    passes: ClassVar = 7.0
    launches: ClassVar = 0.0
    counts_on_gpu: ClassVar = True

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """One instant without temporaries."""
        return (Instant("AdamW", "", 0),)


@dataclass(frozen=True)
class ClippingAdamW(FusedAdamWUpdate):
    """One kernel that also clips each gradient, and writes it."""

    passes: ClassVar = 8.0


@dataclass(frozen=True)
class ForeachAdamWUpdate(AdamWUpdate):
    """One kernel for each operation over all tensors of a group."""

    launches: ClassVar = 0.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """√v of a whole group at once."""
        return tuple(Instant("AdamW", "", _nbytes(group)) for group in groups(pieces) if group)


@dataclass(frozen=True)
class AdamUpdate(AdamWUpdate):
    """Torch's single-tensor Adam with weight decay in the gradient."""

    passes: ClassVar = 22.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """AdamW's temporaries; decayed parameters add `grad + λ·weight`."""
        decayed, spared = groups(pieces)
        return tuple(
            Instant("Adam", tensor.name, before + made * tensor.nbytes, beside(tensor))
            for group, made in ((decayed, 3), (spared, 2))
            for before, tensor in after_another(group)
        )


@dataclass(frozen=True)
class NarrowAdamWUpdate(UpdateRule):
    """Our AdamW with moments in bfloat16."""

    passes: ClassVar = 28.0
    launches: ClassVar = 14.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments in bfloat16 for each parameter, and its step count."""
        return (*(one.cast("bfloat16") for one in like(pieces, 2)), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Both moments of one parameter, widened."""
        return tuple(Instant("NarrowAdamW", one.name, 2 * one.nbytes, beside(one)) for one in in_order(pieces))


def _nbytes(group: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in group)
