"""What a rank hands to collectives: counted where it calls them, by the mesh axis whose ranks they join.

The payload is the larger side of a call: what an all-gather produces, what a reduce-scatter takes, what an all-reduce
holds, what is sent from one rank to another. How many bytes then cross a wire is the backend's business: a ring sends
2(n−1)/n of an all-reduce's payload, and gloo carries a reduce-scatter as an all-reduce.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh

from assay.measure.operations import tensors_in

_NO_PAYLOAD = frozenset(
    ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_", "recv_", "recv_any_source_")
)
"""What waits, and the receiving end of what is counted where it is sent."""


def axes_by_group(mesh: DeviceMesh | None) -> dict[str, str]:
    """The axis of each process group that this rank is in, by the group's name."""
    names = () if mesh is None else mesh.mesh_dim_names or ()
    return {mesh.get_group(name).group_name: name for name in names} if mesh is not None else {}


def collective_of(operator: OpOverload) -> str | None:
    """`allreduce_` of `c10d::allreduce_`; None for what moves nothing."""
    name = operator._schema.name.partition("::")[2]
    return None if name in _NO_PAYLOAD else name


def axis_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], axes: Mapping[str, str]) -> str:
    """The axis of the group among a call's arguments."""
    for value in (*args, *kwargs.values()):
        name = value if isinstance(value, str) else _group_name(value)
        if name is not None and name in axes:
            return axes[name]
    return "world"


def payload_bytes(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """The larger of what goes in and what comes out."""
    made = list(tensors_in(result))
    taken = [one for one in tensors_in((args, dict(kwargs))) if all(one is not other for other in made)]
    return max(sum(map(_nbytes, made)), sum(map(_nbytes, taken)))


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _group_name(value: Any) -> str | None:
    if not isinstance(value, torch.ScriptObject):
        return None
    try:
        return dist.ProcessGroup.unbox(value).group_name
    except (RuntimeError, AttributeError):
        return None
