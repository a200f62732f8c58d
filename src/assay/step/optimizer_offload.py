"""Update on the host: copy gradients from the device, update, and copy the weights back (arXiv:2101.06840).

The optimizer is built over copies of the weights in pinned host memory, so its state is there, too. Each update first
copies the device's weights, which a loaded checkpoint may have changed. It also copies the gradients, whose norm is
computed and clipped on the device. Then the optimizer runs as usual, on the processor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.step.program import NamedParameters, OptimizerLike, Program, Step


def update_on_host(program: Program) -> Program:
    """Return the program whose optimizer, whichever it is, keeps its state in host memory and updates there."""
    return replace(program, optimized=_copies, update=_moved(program.update))


def norm_on_device(inner: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
    """Move the norm that an update returns to the step's device, from which all figures are read at once."""
    return lambda step: inner(step).to(step.program.device)


def _copies(parameters: NamedParameters) -> NamedParameters:
    return [(name, nn.Parameter(_on_host(one))) for name, one in parameters]


def _on_host(tensor: Tensor) -> Tensor:
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return copy.copy_(tensor.detach())


def _moved(inner: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
    def update(step: Step) -> Tensor:
        both = zip(step.named_parameters(), step.optimized, strict=True)
        pairs = [(weight, copy) for (_, weight), (_, copy) in both]
        return inner(replace(step, optimizer=_Moving(step.optimizer, pairs, step.program.device)))

    return update


class _Moving:
    """Optimizer of the copies: copies weights and gradients to the host, steps, and copies the weights back."""

    def __init__(self, inner: OptimizerLike, pairs: Sequence[tuple[Tensor, Tensor]], device: torch.device) -> None:
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.state_dict = inner.state_dict
        self.load_state_dict = inner.load_state_dict
        self._inner, self._pairs, self._device = inner, pairs, device

    @torch.no_grad()
    def step(self) -> None:
        for weight, copy in self._pairs:
            copy.copy_(weight, non_blocking=True)
            if weight.grad is None:
                copy.grad = None
            elif copy.grad is None:
                copy.grad = _on_host(weight.grad)
            else:
                copy.grad.copy_(weight.grad, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self._inner.step()
        for weight, copy in self._pairs:
            weight.copy_(copy, non_blocking=True)
