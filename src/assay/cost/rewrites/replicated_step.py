"""Replicas of a step that divide its batch, and the weights that each holds: data parallelism and ZeRO as a ledger.

A rank keeps equal rows of each weight, the last ones padded, so the last ranks hold only padding of a matrix with few
rows. The bytes are those of `cost.simulation.fsdp_groups`, the communications those of `cost.collectives`.
"""

from collections.abc import Iterator
from dataclasses import replace

from assay.cost.operation import DTYPE_BYTES
from assay.cost.rewrites.low_precision import narrow_ledger
from assay.cost.simulation.fsdp_groups import ShardedGroup
from assay.cost.step_cost import Cost

_AXIS = "dp"


def replica_ledger(cost: Cost) -> Cost:
    """The ledger of a rank that keeps all weights, copies them for their modules, and sums gradients group by group."""
    sharding = replace(cost.sharding, groups=tuple(_groups(cost, ranks=1, reshard=False)))
    shared = replace(cost.share(_AXIS), sharding=sharding).reporting(_AXIS)
    return shared.measuring_norm(_AXIS) if cost.sharding.owned else shared


def shard_ledger(cost: Cost, *, reshard: bool, on_host: bool = False) -> Cost:
    """The ledger of a rank that keeps its rows of all weights; forward gathers them, and with `reshard` backward.

    With `on_host`, its rows, their gradients and their optimizer state are stored in the host's memory.
    """
    ranks, place = cost.mesh.degree(_AXIS), cost.place[_AXIS]
    whole = {name: tensor for name, tensor in cost.pieces.items() if name not in cost.sharding.owned}
    held = cost.pieces | {name: tensor.piece(ranks, place) for name, tensor in whole.items()}
    padding = sum(one.piece(ranks, 0).nbytes - one.piece(ranks, place).nbytes for one in whole.values())
    groups = tuple(replace(one, on_host=on_host) for one in _groups(cost, ranks=ranks, reshard=reshard))
    divided = replace(cost.share(_AXIS), sharding=replace(cost.sharding, groups=groups)).holding(held, padding)
    # Weights that are divided along different axes need separate sums for the norm.
    norms = 2 if cost.mesh.tp > 1 else 1
    return divided.reporting(_AXIS).measuring_norm(_AXIS, norms)


def computing_in(cost: Cost, dtype: str) -> Cost:
    """The ledger with weights gathered in `dtype`, in which everything between the embedding and the logits is, too."""
    return replace(narrow_ledger(cost, dtype), pieces=cost.pieces)


def _groups(cost: Cost, *, ranks: int, reshard: bool) -> Iterator[ShardedGroup]:
    """The groups of each stage: its weights outside of blocks, then those of each block."""
    for sites in cost.pipeline.stages or (("embedding", *cost.block_sites, "head"),):
        blocks = [site for site in sites if site.startswith("blocks.")]
        read = {name for one in cost.tape if one.within(*sites) for name in one.inputs}
        names = [name for name in cost.parameters if name in read and name not in cost.sharding.owned]
        inner = {site: [name for name in names if name.startswith(f"{site}.")] for site in blocks}
        rest = [name for name in names if all(name not in owned for owned in inner.values())]
        for covered, owned in ((sites, rest), *(((site,), owned) for site, owned in inner.items())):
            if owned:
                trained = tuple(name for name in owned if name not in cost.backward.frozen)
                whole, summed = (
                    sum(ranks * tensors[name].piece(ranks, 0).nbytes for name in names)
                    for tensors, names in ((cost.parameters, owned), (cost.pieces, trained))
                )
                wide, narrow = (DTYPE_BYTES[of[owned[0]].dtype] for of in (cost.pieces, cost.parameters))
                of_it = (tuple(covered), tuple(owned), trained, whole, summed, wide // narrow)
                yield ShardedGroup(*of_it, ranks, _AXIS, reshard)
