"""Parameter groups: by weight decay, and by mesh for kernels over several tensors."""

from collections.abc import Sequence
from typing import Any

from assay.step.program import NamedParameters

Groups = Sequence[dict[str, Any]]


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Return two parameter groups: tensors of two or more dimensions decay, biases and gains do not."""
    matrices = [parameter for _, parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for _, parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def by_mesh(groups: Groups) -> list[dict[str, Any]]:
    """Split the groups by their tensors' device mesh: one kernel takes tensors of one mesh, or plain ones."""
    cut: dict[tuple[int, int | None], dict[str, Any]] = {}
    for index, group in enumerate(groups):
        for parameter in group["params"]:
            mesh = getattr(parameter, "device_mesh", None)
            key = (index, None if mesh is None else hash(mesh))
            cut.setdefault(key, {**group, "params": []})["params"].append(parameter)
    return list(cut.values())
