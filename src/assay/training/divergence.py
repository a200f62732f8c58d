"""Name the first tensor that is not finite, once a step's loss or gradient norm is not.

The plain update leaves weights and gradients alone in such a step, so the step's own state can be read: first the
weights it began with, in the model's order; then the outputs of its modules, in a forward that is run again for the
purpose (with fresh dropout noise); then its gradients, from the output backwards, which is the order they were made in.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.step.compiled import interpreted
from assay.step.program import MicroBatch, Step
from assay.training.gradients import summed_loss


def first_not_finite(step: Step, micro_batches: Sequence[MicroBatch]) -> str | None:
    """For instance "the output of blocks.2.mlp"; None when all that is left to look at is finite."""
    for name, parameter in step.named_parameters():
        if not _finite(parameter):
            return f"the weight {name}"
    for micro_batch in micro_batches:
        if output := _first_output(step, micro_batch):
            return output
    for name, parameter in reversed(step.named_parameters()):
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name}"
    return None


def gradients_remain(step: Step) -> bool:
    """Whether the update left gradients in place: a skipped one (loss scaling) clears them, a diverged one does not."""
    return any(parameter.grad is not None for _, parameter in step.named_parameters())


@torch.no_grad()
def _first_output(step: Step, micro_batch: MicroBatch) -> str | None:
    found: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, args: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not _finite(output):
                found.append(f"the output of {name}")

        return note

    modules = [(name, module) for part in step.parts for name, module in part.named_modules() if name]
    handles = [module.register_forward_hook(watch(name)) for name, module in modules]
    try:
        with interpreted(step.program.captures):
            loss = summed_loss(step, micro_batch)
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    return None if math.isfinite(loss.item()) else "the loss"


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())
