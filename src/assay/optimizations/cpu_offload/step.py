"""Offload weights to host memory; a module's are copied to the device for its forward, and one by one for backward.

A copy to another device is differentiated by autograd. So gradients are copied to the host by autograd, and accumulated
there. During a module's forward, its weights are replaced by such copies. A copy that autograd would save for backward
is dropped and made again from the host when its node runs. Weights do not change in between. A module that is
recomputed in backward copies its weights once more, and keeps them until its backward has finished.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from assay.model import Block, Embedding
from assay.model.gpt import Head
from assay.step.program import NamedParameters, Program
from assay.step.recomputed import Keeper
from assay.step.stand_in_update import norm_on_device


def weights_on_host(program: Program) -> Program:
    """Return the program whose weights, gradients and optimizer state are stored and updated on the host."""
    fetching = Fetching(program.device)
    for unit in _units(program.parts):
        fetching.around(unit)
    return replace(
        program,
        weights=replace(program.weights, rest=torch.device("cpu")),
        optimized=_pinned if program.device.type == "cuda" else program.optimized,
        update=norm_on_device(program.update),
        step_contexts=(*program.step_contexts, fetching.dropping),
        witnesses=(*program.witnesses, fetching),
    )


@dataclass(frozen=True, eq=False)
class _Dropped:
    """Placeholder of a saved copy of a weight, from which the copy can be made again."""

    weight: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


class Fetching(Keeper):
    """Copies weights to a device while a module runs; reports every other tensor saved for backward."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._weights: dict[int, Tensor] = {}
        """Weights by the storage of their copy, while it is in use."""

    def around(self, module: nn.Module) -> None:
        """Wrap a module's forward in place, so that its weights are on the device while it runs."""
        inner = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            with self._fetched(module):
                return inner(*args, **kwargs)

        module.forward = forward

    def dropping(self) -> saved_tensors_hooks:
        """Make the context of a step's forward and backward in which copies of weights are not saved."""
        return saved_tensors_hooks(self._pack, self._unpack)

    @contextmanager
    def _fetched(self, module: nn.Module) -> Iterator[None]:
        resting: list[tuple[dict[str, Any], str, Tensor]] = []
        here: list[int] = []
        try:
            for owner in module.modules():
                places: dict[str, Any] = owner._parameters
                for name, weight in [(name, one) for name, one in places.items() if one is not None]:
                    copy = weight.to(self._device, non_blocking=True, copy=True)
                    resting.append((places, name, weight))
                    here.append(copy.untyped_storage()._cdata)
                    self._weights[here[-1]] = weight
                    places[name] = copy
            yield
        finally:
            for places, name, weight in resting:
                places[name] = weight
            for storage in here:
                del self._weights[storage]

    def _pack(self, tensor: Tensor) -> Tensor | _Dropped:
        weight = self._weights.get(tensor.untyped_storage()._cdata)
        if weight is not None:
            return _Dropped(weight.detach(), tensor.shape, tensor.stride(), int(tensor.storage_offset()))
        if self.watcher is not None:
            self.watcher(tensor)
        return tensor.data  # without its history, which would never release it

    def _unpack(self, packed: Tensor | _Dropped) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        copy = packed.weight.to(self._device, non_blocking=True, copy=True)
        return copy.as_strided(packed.shape, packed.stride, packed.offset)


def _units(parts: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Yield the smallest modules that use their weights themselves, within modules that may be recomputed."""
    for part in parts:
        for module in part.modules():
            if isinstance(module, Embedding | Head):
                yield module
            elif isinstance(module, Block):
                yield from module.children()


def _pinned(parameters: NamedParameters) -> NamedParameters:
    """Pin the parameters in host memory, so that copies to the device need no buffer."""
    for _, parameter in parameters:
        parameter.data = parameter.data.pin_memory()
    return parameters
