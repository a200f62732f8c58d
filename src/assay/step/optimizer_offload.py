"""Update on the host: copy gradients from the device, update, and copy the weights back (arXiv:2101.06840).

The optimizer is built over copies of the weights in pinned host memory, so its state is there, too. Each update first
copies the device's weights, which a loaded checkpoint may have changed. It also copies the gradients, whose norm is
computed and clipped on the device. Then the optimizer runs as usual, on the processor.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.step.optimized import Pairs, update_in_place_of
from assay.step.program import NamedParameters, Program, Step


def update_on_host(program: Program) -> Program:
    """Return the program whose optimizer, whichever it is, keeps its state in host memory and updates there."""
    return replace(program, optimized=_copies, update=update_in_place_of(program.update, _to_host, _to_device))


def norm_on_device(inner: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
    """Move the norm that an update returns to the step's device, from which all figures are read at once."""
    return lambda step: inner(step).to(step.program.device)


def _copies(parameters: NamedParameters) -> NamedParameters:
    return [(name, nn.Parameter(_on_host(one))) for name, one in parameters]


def _on_host(tensor: Tensor) -> Tensor:
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return copy.copy_(tensor.detach())


def _to_host(step: Step, pairs: Pairs) -> None:
    """Copy weights and gradients to the host's copies, and wait for them."""
    for weight, copy in pairs:
        copy.copy_(weight, non_blocking=True)
        if weight.grad is None:
            copy.grad = None
        elif copy.grad is None:
            copy.grad = _on_host(weight.grad)
        else:
            copy.grad.copy_(weight.grad, non_blocking=True)
    if step.program.device.type == "cuda":
        torch.cuda.current_stream(step.program.device).synchronize()


def _to_device(step: Step, pairs: Pairs) -> None:
    for weight, copy in pairs:
        weight.copy_(copy, non_blocking=True)
