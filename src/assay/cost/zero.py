"""ZeRO's first stage as a ledger: weights and gradients whole, the optimizer's state and its update of pieces.

Of each weight a rank updates a piece along the first dimension that no other axis divides; where there is none, as of
the bias of a matrix whose rows tensor parallelism divides, every replica updates all that it has. Then the pieces of
all ranks are gathered, one weight after the other, padded to equal length (arXiv:1910.02054). What is divided by
columns arrives piece behind piece, and is copied once more to lie side by side. On a CPU everything is copied once:
gloo gathers into a buffer of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from assay.cost.collectives import Communication
from assay.cost.gpt import CPU, Kernels
from assay.cost.step import Cost
from assay.cost.tensors import Tensor
from assay.cost.updates import Instant

_AXIS = "dp"


@dataclass(frozen=True)
class _Division:
    """How one weight is dealt out to the ranks."""

    weight: Tensor
    dimension: int
    ranks: int

    def piece(self, index: int) -> Tensor:
        """What one rank updates."""
        return self.weight.piece(self.ranks, index, self.dimension)

    @property
    def gathered_bytes(self) -> int:
        """Of all pieces, padded."""
        return self.ranks * self.piece(0).nbytes

    def gathering(self, kernels: Kernels) -> Instant:
        """The pieces as they arrive, and the copy that is made of them."""
        rows_in_place = self.dimension == 0 and kernels != CPU
        return Instant("all_gather", self.weight.name, (1 if rows_in_place else 2) * self.gathered_bytes)


def divided(cost: Cost, whole: Mapping[str, Tensor]) -> Cost:
    """The ledger of a replica whose optimizer sees pieces of the weights; `whole` are the model's, undivided."""
    index = cost.place[_AXIS]
    divisions = dict(_divisions(cost, whole))
    pieces = {name: one.piece(index) for name, one in divisions.items()}
    sent = [
        Communication("all_gather", _AXIS, one.gathered_bytes, 1, "updated weights", one.weight.dtype)
        for one in divisions.values()
    ]
    own = replace(
        cost,
        optimized=cost.pieces | pieces,
        after_update=tuple(one.gathering(cost.kernels) for one in divisions.values()),
    )
    return own.sending(*sent)


def _divisions(cost: Cost, whole: Mapping[str, Tensor]) -> Iterator[tuple[str, _Division]]:
    for name, weight in cost.pieces.items():
        if name in cost.owned:
            continue
        # A tied weight's copy at the other end of a pipeline is of the same shape as the one it copies.
        lengths = enumerate(zip(weight.shape, whole[weight.name].shape, strict=True))
        free = next((dimension for dimension, (here, there) in lengths if here == there), None)
        if free is not None:
            yield name, _Division(weight, free, cost.mesh.degree(_AXIS))
