"""Weights in the host's memory: a module's come to the device for its forward, and one by one for its backward.

A copy to another device is an operator that autograd differentiates, so a gradient finds its own way down and is added
up on the host. For the time of a module's forward its weights are exchanged for such copies. What autograd would keep
of a copy for backward is let go, and made again from the host when its node runs; weights do not change in between. A
module that runs again in backward fetches its weights again, and keeps them until that backward is through.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from assay.model import Block, Embedding
from assay.model.gpt import Head
from assay.step.on_host import norm_on_device
from assay.step.program import NamedParameters, Program


def weights_on_host(program: Program) -> Program:
    """The program whose weights, gradients and optimizer state lie on the host, and are updated there."""
    fetching = Fetching(program.device)
    for unit in _units(program.parts):
        fetching.around(unit)
    return replace(
        program,
        rest=torch.device("cpu"),
        optimized=_pinned if program.device.type == "cuda" else program.optimized,
        update=norm_on_device(program.update),
        step_contexts=(*program.step_contexts, fetching.dropping),
        kept=(*program.kept, fetching),
    )


@dataclass(frozen=True, eq=False)
class _Dropped:
    """What was saved of a weight's copy: enough to make it again."""

    weight: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


class Fetching:
    """Brings weights to a device while a module runs."""

    def __init__(self, device: torch.device) -> None:
        self.watcher: Callable[[Any], None] | None = None
        """Told of everything that stays for backward: other hooks on saved tensors are not."""
        self._device = device
        self._weights: dict[int, Tensor] = {}
        """By the storage of its copy, while that is being used."""

    def around(self, module: nn.Module) -> None:
        """Have a module's weights on the device during its forward; wrapped in place."""
        inner = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            with self._fetched(module):
                return inner(*args, **kwargs)

        module.forward = forward

    def dropping(self) -> saved_tensors_hooks:
        """The context of a step's forward and backward in which copies are not kept."""
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
        return tensor.data  # without its history, which would hold it for ever

    def _unpack(self, packed: Tensor | _Dropped) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        copy = packed.weight.to(self._device, non_blocking=True, copy=True)
        return copy.as_strided(packed.shape, packed.stride, packed.offset)


def _units(parts: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """The smallest modules that use their weights themselves, inside of what may run again."""
    for part in parts:
        for module in part.modules():
            if isinstance(module, Embedding | Head):
                yield module
            elif isinstance(module, Block):
                yield from module.children()


def _pinned(parameters: NamedParameters) -> NamedParameters:
    """Where copies to the device need not pass through a buffer."""
    for _, parameter in parameters:
        parameter.data = parameter.data.pin_memory()
    return parameters
