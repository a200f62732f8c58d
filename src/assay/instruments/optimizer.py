"""Read an optimizer's groups and state, and count the elements that its update writes into parameters."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from assay.instruments import operations
from assay.instruments.memory.storages import distinct_bytes, identity, storages
from assay.parallel.dtensor import local
from assay.records.trace import Group, Setting, Updated
from assay.step.program import Step


class Writes:
    """Counts the elements written into the parameters of a step, by parameter and operator."""

    def __init__(self, step: Step) -> None:
        both = (*step.named_parameters(), *step.optimized)  # a copy on the host has a storage of its own
        self._names = {identity(storage): name for name, one in both for storage in storages(one)}
        self._elements: dict[str, Counter[str]] = {}
        self._versions = {name: local(one)._version for name, one in step.optimized}

    def note(self, operator: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Count the elements that one operator of the update wrote into parameters."""
        for tensor in _written(operator, args, kwargs):
            if name := self._names.get(identity(tensor.untyped_storage())):
                self._elements.setdefault(name, Counter())[operations.name_of(operator)] += tensor.numel()

    def of(self, name: str) -> dict[str, int]:
        """Elements written into one parameter, by operator."""
        return dict(self._elements.get(name, {}))

    def changes(self, name: str, tensor: torch.Tensor) -> int:
        """Number of changes in place of one parameter since this object was made."""
        return local(tensor)._version - self._versions[name]


def parameter_updates(step: Step, writes: Writes) -> tuple[Updated, ...]:
    """Describe every parameter that the optimizer of a step updates."""
    state = step.optimizer.state
    return tuple(_updated(name, one, state.get(one, {}), writes) for name, one in step.optimized)


def groups(step: Step) -> tuple[Group, ...]:
    """Return the optimizer's parameter groups as plain data."""
    names = {id(one): name for name, one in step.optimized}
    return tuple(
        Group(
            parameters=tuple(names[id(one)] for one in group["params"] if id(one) in names),
            settings=dict(_settings(group)),
        )
        for group in step.optimizer.param_groups
    )


def _updated(name: str, parameter: torch.Tensor, state: Mapping[str, Any], writes: Writes) -> Updated:
    counted = state.get("step")
    return Updated(
        name=name,
        elements=local(parameter).numel(),
        written=writes.of(name),
        changes=writes.changes(name, parameter),
        state={key: distinct_bytes([one]) for key, one in state.items() if isinstance(one, torch.Tensor)},
        steps=None if counted is None else float(counted),
    )


def _written(operator: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[torch.Tensor]:
    for place, name in operations.written_arguments(operator):
        yield from operations.tensors_in(args[place] if place < len(args) else kwargs.get(name))


def _settings(group: Mapping[str, Any]) -> Iterable[tuple[str, Setting]]:
    for name, value in group.items():
        if name == "params":
            continue
        if isinstance(value, tuple | list) and all(isinstance(one, int | float) for one in value):
            yield name, tuple(map(float, value))
        elif isinstance(value, bool | int | float | torch.Tensor):
            yield name, float(value)
