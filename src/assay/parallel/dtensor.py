"""One rank's shard of a tensor that is distributed over a mesh.

A `DTensor` has the global shape and a placement per mesh dimension; its local tensor is this rank's shard. Operations
on storage, such as filling and scaling, work on the shard.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement


def is_spread(tensor: Tensor) -> "TypeGuard[DTensor]":
    """True for a `DTensor`. Its module takes over a second to import; until it is imported, no `DTensor` exists."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard, which shares storage; a plain tensor is returned unchanged."""
    return tensor.to_local() if is_spread(tensor) else tensor


def divided_over(tensor: Tensor) -> tuple[str, ...]:
    """Return the mesh axes along which a tensor is not replicated."""
    if not is_spread(tensor):
        return ()
    names = tensor.device_mesh.mesh_dim_names or ()
    # A strided shard, of a weight that two axes split along one dimension, is no `Shard`, but not replicated either.
    return tuple(name for name, place in zip(names, tensor.placements, strict=True) if not place.is_replicate())


def dimensions(tensor: Tensor) -> dict[str, int]:
    """Return the tensor dimension that each mesh axis divides, by name of the axis."""
    if not is_spread(tensor):
        return {}
    names = tensor.device_mesh.mesh_dim_names or ()
    # A strided shard is no `Shard`, but has a dimension too.
    places = {name: getattr(place, "dim", None) for name, place in zip(names, tensor.placements, strict=True)}
    return {name: dimension for name, dimension in places.items() if dimension is not None}


def placed_gradient(parameter: Tensor) -> Tensor | None:
    """Redistribute the gradient to its weight's placements and return it; backward may leave it whole or partial."""
    gradient = parameter.grad
    if (
        gradient is not None
        and is_spread(parameter)
        and is_spread(gradient)
        and gradient.placements != parameter.placements
    ):
        gradient = gradient.redistribute(placements=parameter.placements)
        parameter.grad = gradient
    return gradient


@torch.no_grad()
def fill(tensor: Tensor, whole: Tensor) -> None:
    """Copy this rank's shard of `whole`, which has the global shape, into `tensor`."""
    local(tensor).copy_(shard_like(tensor, whole))


def shard_like(tensor: Tensor, whole: Tensor) -> Tensor:
    """Return the view of `whole`, which has the global shape, that `tensor` holds on this rank.

    torch's `compute_local_shape_and_global_offset` (2.11 to 2.13) is wrong where a shard of a shard is uneven. Of 57
    rows over 2 and then 4 ranks it gives the last rank 6. It holds 7.
    """
    if not is_spread(tensor):
        return whole
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    for axis, dimension in _cuts(tensor.placements):
        pieces, place = whole.chunk(mesh.size(axis), dimension), coordinate[axis]
        whole = pieces[place] if place < len(pieces) else whole.narrow(dimension, 0, 0)
    return whole


def _cuts(placements: Sequence[Any]) -> list[tuple[int, int]]:
    """Return (mesh axis, tensor dimension) of each cut, in their order.

    A strided shard cuts what the axes to its right left.
    """
    cuts = [(axis, one.dim) for axis, one in enumerate(placements) if hasattr(one, "dim")]
    strided = [cut for cut in cuts if hasattr(placements[cut[0]], "split_factor")]
    return [cut for cut in cuts if cut not in strided] + strided[::-1]


def spread(module: nn.Module, mesh: DeviceMesh, placements: "Mapping[str, Placement]") -> None:
    """Distribute a module's own parameters, by name, over a one-dimensional `mesh`; names may be missing."""
    from torch.distributed.tensor import distribute_tensor

    for name, parameter in list(module.named_parameters(recurse=False)):
        if name in placements:
            pieces = distribute_tensor(parameter, mesh, [placements[name]])
            module.register_parameter(name, nn.Parameter(pieces))
