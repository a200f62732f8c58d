"""ZeRO's first stage as a ledger: weights and gradients are whole, optimizer state and update are sharded.

A rank updates a shard of each weight, along the first dimension that no other axis divides. Without such a dimension,
every replica updates all that it has. The bias of a matrix whose rows tensor parallelism divides is an example. Then
the shards of all ranks are gathered, one weight after the other, padded to equal length (arXiv:1910.02054). Shards
along columns arrive one behind the other, and are copied once more into place. On a CPU every shard is copied: gloo
gathers into a buffer of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from assay.cost.collectives import Communication
from assay.cost.kernels import CPU, Kernels
from assay.cost.optimizers.updates import Instant
from assay.cost.step import Cost
from assay.cost.tensors import Tensor

_AXIS = "dp"


@dataclass(frozen=True)
class _Division:
    """Division of one weight among the ranks."""

    weight: Tensor
    dimension: int
    ranks: int

    def piece(self, index: int) -> Tensor:
        """The shard that one rank updates."""
        return self.weight.piece(self.ranks, index, self.dimension)

    @property
    def gathered_bytes(self) -> int:
        """Bytes of all shards, padding included."""
        return self.ranks * self.piece(0).nbytes

    def gathering(self, kernels: Kernels) -> Instant:
        """Instant of the all-gather: the shards as they arrive, and their copy unless they arrive in place."""
        rows_in_place = self.dimension == 0 and kernels != CPU
        return Instant("all_gather", self.weight.name, (1 if rows_in_place else 2) * self.gathered_bytes)


def divided(cost: Cost, whole: Mapping[str, Tensor]) -> Cost:
    """The ledger of a replica whose optimizer updates shards of the weights; `whole` are the undivided weights."""
    index = cost.place[_AXIS]
    divisions = dict(_divisions(cost, whole))
    pieces = {name: one.piece(index) for name, one in divisions.items()}
    sent = [
        Communication("all_gather", _AXIS, one.gathered_bytes, 1, "updated weights", one.weight.dtype)
        for one in divisions.values()
    ]
    gathers = tuple(one.gathering(cost.kernels) for one in divisions.values())
    optimizer = replace(cost.optimizer, shards=cost.pieces | pieces, after=gathers)
    return replace(cost, optimizer=optimizer).sending(*sent)


def _divisions(cost: Cost, whole: Mapping[str, Tensor]) -> Iterator[tuple[str, _Division]]:
    for name, weight in cost.pieces.items():
        if name in cost.sharding.owned:
            continue
        # A tied weight's copy at the other end of a pipeline has the shape of its original.
        lengths = enumerate(zip(weight.shape, whole[weight.name].shape, strict=True))
        free = next((dimension for dimension, (here, there) in lengths if here == there), None)
        if free is not None:
            yield name, _Division(weight, free, cost.mesh.degree(_AXIS))
