"""Work that a host queues on a device without waiting for it: copies of batches and saved tensors, and clock events.

A GPU copies from pageable memory through a buffer of the driver. The host then waits until all earlier work is done.
From pinned memory the device copies by itself, in the order of its queue. Torch keeps the pinned block until the copy
is done, and uses it again for the next one.

Saved tensors are in pinned host memory from the moment they are saved until their node runs. Torch's `save_on_cpu` also
moves weights, which stay on the device anyway, and makes the host wait for every copy. Here weights are excluded.
Copies to the host run on a side stream during the forward, and copies back run in the stream that needs them. The host
waits for neither.

Times on a device's own clock are events in its queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def copied_to(device: torch.device, tensor: Tensor) -> Tensor:
    """Return the tensor on `device`; itself if it is there already."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class _Down:
    """Host copy of a saved tensor, and the tensor's device."""

    copy: Tensor
    device: torch.device


class Offload:
    """Makes the context for a step's forward and backward; one object serves all steps of a program."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self._parts = parts
        self._weights: set[int] = set()
        self._side: torch.cuda.Stream | None = None

    def __call__(self) -> saved_tensors_hooks:
        weights = (parameter for part in self._parts for parameter in part.parameters())
        self._weights = {parameter.untyped_storage()._cdata for parameter in weights}
        return saved_tensors_hooks(self._pack, self._unpack)

    @torch.no_grad()
    def _pack(self, tensor: Tensor) -> Tensor | _Down:
        if tensor.untyped_storage()._cdata in self._weights:
            return tensor
        if not tensor.is_cuda:
            return _Down(tensor.detach().clone(), tensor.device)
        here = torch.cuda.current_stream(tensor.device)
        self._side = self._side or torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        self._side.wait_stream(here)
        with torch.cuda.stream(self._side):
            copy = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
        tensor.record_stream(self._side)
        return _Down(copy, tensor.device)

    def _unpack(self, packed: Tensor | _Down) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        if self._side is not None:
            torch.cuda.current_stream(packed.device).wait_stream(self._side)
        return packed.copy.to(packed.device, non_blocking=True)


def mark(device: torch.device) -> torch.cuda.Event | None:
    """Put an event with a time into the device's queue and return it; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(first: torch.cuda.Event | None, later: torch.cuda.Event | None) -> float | None:
    """Return the device's seconds between two events that it has reached; None on a CPU."""
    return None if first is None or later is None else float(first.elapsed_time(later)) / 1e3
