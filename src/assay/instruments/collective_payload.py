"""Payloads of a rank's collectives, counted at each call by the mesh axis of its group.

The payload is the larger side of a call: an all-gather's output, a reduce-scatter's input, the tensor of an all-reduce
or a send. The traffic depends on the backend. A ring sends 2(n−1)/n of an all-reduce's payload, and gloo implements a
reduce-scatter as an all-reduce.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh

from assay.instruments.operations import tensors_in

_STANDARD = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
}
"""The field's name by torch's operator, whose variants' suffixes are removed, if the two names differ."""
_NO_PAYLOAD = frozenset(
    ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_", "recv_", "recv_any_source_")
)
"""Operators that only wait, and receives, whose bytes are counted at the sender."""


class Axes:
    """Maps the group of a call to its mesh axis; a group of some ranks of an axis counts as that axis."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        groups = {} if mesh is None else {axis: mesh.get_group(axis) for axis in mesh.mesh_dim_names or ()}
        self._by_name: dict[str, str] = {group.group_name: axis for axis, group in groups.items()}
        self._members = {axis: set(dist.get_process_group_ranks(group)) for axis, group in groups.items()}

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The axis of a call's group, or `world` if several axes or none contain the group."""
        for value in (*args, *kwargs.values()):
            group = None if isinstance(value, str) else _group(value)
            name = value if group is None else group.group_name
            if isinstance(name, str) and name in self._by_name:
                return self._by_name[name]
            if group is not None:
                ranks = set(dist.get_process_group_ranks(group))
                along = [axis for axis, members in self._members.items() if ranks <= members]
                return along[0] if len(along) == 1 else "world"
        return "world"


def group_ranks(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """Ranks of the group that a call names or receives; empty if the group is unknown."""
    for value in (*args, *kwargs.values()):
        group = _named(value) if isinstance(value, str) else _group(value)
        if group is not None:
            return tuple(dist.get_process_group_ranks(group))
    return ()


def collective_of(operator: OpOverload) -> str | None:
    """The field's name of a collective, `all_reduce` for `c10d::allreduce_`; None if it has no payload."""
    name = operator._schema.name.partition("::")[2]
    if name in _NO_PAYLOAD:
        return None
    plain = name.strip("_").removesuffix("coalesced").strip("_").removesuffix("base").strip("_")
    return _STANDARD.get(plain, plain)


def payload_bytes(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """Bytes of the inputs or of the outputs, whichever are larger; in-place outputs count once."""
    made = tensors_in(result)
    taken = [one for one in tensors_in((args, dict(kwargs))) if all(one is not other for other in made)]
    return max(sum(map(_nbytes, made)), sum(map(_nbytes, taken)))


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _named(name: str) -> dist.ProcessGroup | None:
    try:
        return dist.distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined,arg-type]
    except (RuntimeError, LookupError, ValueError):
        return None


def _group(value: Any) -> dist.ProcessGroup | None:
    if not isinstance(value, torch.ScriptObject):
        return None
    try:
        return dist.ProcessGroup.unbox(value)
    except (RuntimeError, AttributeError):
        return None
