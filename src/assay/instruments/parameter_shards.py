"""The shard of each parameter on this rank, and the names of parameters that share a storage."""

import torch

from assay.instruments.memory.storages import distinct_bytes, dtype_name, identity, storages
from assay.parallel.dtensor import dimensions, divided_over, local
from assay.records.trace import HeldParameter


def held(name: str, parameter: torch.Tensor) -> HeldParameter:
    """Describe the shard of one parameter for a trace."""
    whole = parameter.numel() * parameter.element_size()
    return HeldParameter(
        name=name,
        held_bytes=distinct_bytes([parameter]),
        whole_bytes=whole,
        divided_over=divided_over(parameter),
        dimensions=dimensions(parameter),
        shape=tuple(local(parameter).shape),
        whole_shape=tuple(parameter.shape),
        dtype=dtype_name(parameter.dtype),
    )


def shared(parts: tuple[torch.nn.Module, ...]) -> tuple[tuple[str, ...], ...]:
    """Groups of parameter names that share one storage."""
    names: dict[int, list[str]] = {}
    for part in parts:
        for name, parameter in part.named_parameters(remove_duplicate=False):
            for storage in storages(parameter):
                names.setdefault(identity(storage), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)
