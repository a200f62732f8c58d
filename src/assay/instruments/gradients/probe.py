"""The gradient of each of several micro-batches on its own, at the weights of a trained model.

The model is the plain one, without optimizations: a technique changes how a gradient is computed, and here is asked
what the gradient is. Dropout is off, and nothing is updated. All gradients are held in memory: 4 bytes for each
parameter and micro-batch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.instruments.gradients.noise import Gram
from assay.instruments.gradients.scale import scales
from assay.model.gpt import GPT
from assay.records.gradients import ModuleGradient


@dataclass(frozen=True)
class Gradients:
    """Gradients of several micro-batches."""

    losses: tuple[float, ...]
    """Loss of each micro-batch, in nats per token."""
    products: Gram
    modules: tuple[ModuleGradient, ...]


def gradients(
    model: GPT, micro_batches: Iterable[tuple[Tensor, Tensor]], tell: Callable[[int], None] = lambda done: None
) -> Gradients:
    """Compute the gradient of each micro-batch: ids and targets, int64, each `[sequences, context_length]`.

    `tell` receives the number of micro-batches that are done.
    """
    model.eval()
    parameters = dict(model.named_parameters())
    for one in parameters.values():
        one.requires_grad_(True)
    losses: list[float] = []
    found: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for done, (ids, targets) in enumerate(micro_batches, start=1):
        loss = model(ids, targets) / targets.numel()
        each = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
        for name, gradient in zip(parameters, each, strict=True):
            found[name].append(gradient)
        losses.append(loss.item())
        tell(done)
    means = ((name, one.detach(), torch.stack(found[name]).double().mean(0)) for name, one in parameters.items())
    return Gradients(tuple(losses), _products(found.values(), len(losses)), scales(means))


def _products(found: Iterable[Sequence[Tensor]], count: int) -> Gram:
    """Return the dot products of all pairs, summed over parameters in float64."""
    total = np.zeros((count, count))
    for each in found:
        rows = torch.stack([one.flatten() for one in each]).double()
        total += (rows @ rows.t()).numpy()
    return total
