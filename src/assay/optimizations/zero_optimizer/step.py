"""ZeRO's first stage (Rajbhandari et al. 2020, arXiv:1910.02054): replicas that shard the optimizer's state.

Each rank updates a shard of every weight. The shard is a `DTensor` over the weight's storage, so that the update
changes the weight itself. Its optimizer state is sharded in the same way. After the update, the shards of all ranks
are gathered, one weight after the other. The shard's gradient is a view of the weight's gradient, set only after
unscaling and clipping. Torch's `ZeroRedundancyOptimizer` assigns whole weights to ranks, and cannot handle sharded
ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from assay.parallel.dtensor import local
from assay.step.program import NamedParameters, OptimizerLike, Program, Step


def divide_state(program: Program) -> Program:
    """Make the optimizer of each replica along dp update its shard of every weight only."""
    return replace(program, optimized=_pieces, update=_on_pieces(program.update))


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


def _on_pieces(inner: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
    def update(step: Step) -> Tensor:
        both = zip(step.named_parameters(), step.optimized, strict=True)
        pairs = [(whole, piece) for (_, whole), (_, piece) in both if whole is not piece]
        return inner(replace(step, optimizer=_Handing(step.optimizer, pairs)))

    return update


class _Handing:
    """An optimizer of shards that takes the gradients of the whole weights, and gathers the weights after its step."""

    def __init__(self, inner: OptimizerLike, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.state_dict = inner.state_dict
        self.load_state_dict = inner.load_state_dict
        self._inner = inner
        self._pairs = [(w, p) for w, p in pairs if isinstance(w, DTensor) and isinstance(p, DTensor)]

    @torch.no_grad()
    def step(self) -> None:
        for whole, piece in self._pairs:
            if isinstance(whole.grad, DTensor):
                piece.grad = _part(whole.grad, piece.placements)
        self._inner.step()
        for whole, piece in self._pairs:
            piece.grad = None
            local(whole).copy_(local(piece.redistribute(placements=whole.placements)))
