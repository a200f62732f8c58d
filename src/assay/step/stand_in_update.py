"""Update of tensors that stand in for the weights: copies in host memory, or shards.

`Program.optimized` makes these tensors, one for each weight. Gradients are passed to them before the optimizer's step,
and their values are passed back after it. The rest of an update (unscaling, norm, clipping) is that of the weights.

An update on the host copies gradients from the device, updates, and copies the weights back (arXiv:2101.06840). The
optimizer is built over copies of the weights in pinned host memory, so its state is there, too. Each update first
copies the device's weights, which a loaded checkpoint may have changed. It also copies the gradients, whose norm is
computed and clipped on the device. Then the optimizer runs as usual, on the processor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.step.program import NamedParameters, Program, Step

Update = Callable[[Step], Tensor]
Pairs = Sequence[tuple[Tensor, Tensor]]
"""(weight, tensor that the optimizer updates in its place); weights that it updates themselves are not listed."""
Transfer = Callable[[Step, Pairs], None]


def update_in_place_of(inner: Update, before: Transfer, after: Transfer) -> Update:
    """Return the update `inner` with a transfer before the optimizer's step, and one after it."""

    def update(step: Step) -> Tensor:
        weights = dict(step.named_parameters())
        pairs = [(weights[name], other) for name, other in step.optimized if weights[name] is not other]
        return inner(replace(step, optimizer=_Transferring(step, pairs, before, after)))

    return update


class _Transferring:
    """Optimizer of a step whose own step is enclosed by the transfers."""

    def __init__(self, step: Step, pairs: Pairs, before: Transfer, after: Transfer) -> None:
        inner = step.optimizer
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.state_dict = inner.state_dict
        self.load_state_dict = inner.load_state_dict
        self._step, self._pairs, self._before, self._after = step, pairs, before, after

    @torch.no_grad()
    def step(self) -> None:
        self._before(self._step, self._pairs)
        self._step.optimizer.step()
        self._after(self._step, self._pairs)


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
