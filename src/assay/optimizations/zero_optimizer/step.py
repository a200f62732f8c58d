"""ZeRO's first stage (Rajbhandari et al. 2020, arXiv:1910.02054): replicas that shard the optimizer's state.

Each rank updates a shard of every weight. The shard is a `DTensor` over the weight's storage, so that the update
changes the weight itself. Its optimizer state is sharded in the same way. After the update, the shards of all ranks
are gathered, one weight after the other. The shard's gradient is a view of the weight's gradient, set only after
unscaling and clipping. Torch's `ZeroRedundancyOptimizer` assigns whole weights to ranks, and cannot handle sharded
ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from assay.parallel.dtensor import local
from assay.step.program import NamedParameters, Program, Step
from assay.step.stand_in_update import Pairs, update_in_place_of


def divide_state(program: Program) -> Program:
    """Make the optimizer of each replica along dp update its shard of every weight only."""
    update = update_in_place_of(program.update, _gradients_to_pieces, _gather_weights)
    return replace(program, optimized=_pieces, update=update)


def _pieces(parameters: NamedParameters) -> NamedParameters:
    return [(name, _piece(parameter)) for name, parameter in parameters]


def _piece(weight: nn.Parameter) -> nn.Parameter:
    """Return this rank's shard along the first dimension that no other axis divides.

    If there is none, the whole weight is returned, and likewise for an expert that no other rank of dp holds.
    """
    if not isinstance(weight, DTensor):
        raise TypeError("only a weight that torch replicates over the mesh can be divided")
    axis = (weight.device_mesh.mesh_dim_names or ()).index("dp")
    taken = {place.dim for place in weight.placements if isinstance(place, Shard)}
    free = next((dimension for dimension in range(weight.ndim) if dimension not in taken), None)
    if free is None or not weight.placements[axis].is_replicate():
        return weight
    placements = (*weight.placements[:axis], Shard(free), *weight.placements[axis + 1 :])
    return nn.Parameter(_part(weight, placements))


def _part(whole: DTensor, placements: Sequence[Any]) -> DTensor:
    """Return a view of this rank's part of a replicated tensor under other placements."""
    mesh = whole.device_mesh
    part = whole.to_local().detach()
    for dimension, (start, length) in enumerate(_cut(whole.shape, mesh, whole.placements, tuple(placements))):
        part = part.narrow(dimension, start, length)
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


@cache
def _cut(
    shape: torch.Size, mesh: DeviceMesh, before: tuple[Any, ...], after: tuple[Any, ...]
) -> tuple[tuple[int, int], ...]:
    """Return (start, length) along each dimension of one local tensor in another.

    The result is cached, because torch computes it with tensors.
    """
    (_, origins), (lengths, offsets) = (
        compute_local_shape_and_global_offset(shape, mesh, one) for one in (before, after)
    )
    return tuple((offset - origin, length) for offset, origin, length in zip(offsets, origins, lengths, strict=True))


def _gradients_to_pieces(step: Step, pairs: Pairs) -> None:
    for whole, piece in pairs:
        if isinstance(whole.grad, DTensor) and isinstance(piece, DTensor):
            piece.grad = _part(whole.grad, piece.placements)


def _gather_weights(step: Step, pairs: Pairs) -> None:
    """Gather every weight from its updated shards."""
    for whole, piece in pairs:
        if isinstance(whole, DTensor) and isinstance(piece, DTensor):
            piece.grad = None
            local(whole).copy_(local(piece.redistribute(placements=whole.placements)))
