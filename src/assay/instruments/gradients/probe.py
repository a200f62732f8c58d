"""The gradient of each of several micro-batches on its own, at the weights of a trained model.

The model is the plain one, without optimizations: a technique changes how a gradient is computed, and here is asked
what the gradient is. Dropout is off, and nothing is updated. Each gradient is computed twice and never kept. The first
pass gives the sum of all, and the second one the product of each with that sum. So memory does not grow with their
number. It is 24 bytes a parameter, beside the model and the activations of one micro-batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.instruments.gradients.noise import Sums
from assay.instruments.gradients.scale import scales
from assay.model.gpt import GPT
from assay.records.gradients import ModuleGradient

MicroBatch = tuple[Tensor, Tensor]
"""Ids and targets, int64, each `[sequences, context_length]`."""


@dataclass(frozen=True)
class ProbedGradients:
    """Gradients of several micro-batches."""

    losses: tuple[float, ...]
    """Loss of each micro-batch, in nats per token."""
    sums: Sums
    modules: tuple[ModuleGradient, ...]


def gradients(
    model: GPT,
    micro_batch: Callable[[int], MicroBatch],
    count: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> ProbedGradients:
    """Compute the gradients of the micro-batches 0 to `count` − 1; `micro_batch` returns the same one each time.

    `tell` receives the number of gradients that are computed, and of all: two of each micro-batch.
    """
    model.eval()
    parameters = dict(model.named_parameters())
    for one in parameters.values():
        one.requires_grad_(True)
    weights = list(parameters.values())
    losses: list[float] = []
    squares, with_sum = np.zeros(count), np.zeros(count)
    total, units = ([torch.zeros_like(one, dtype=torch.float64) for one in weights] for _ in range(2))
    for number in range(count):
        loss, each = _gradient(model, weights, micro_batch(number))
        losses.append(loss)
        squares[number] = _product(each, each)
        length = squares[number] ** 0.5 or 1.0
        for gradient, summed, unit in zip(each, total, units, strict=True):
            summed += gradient
            unit.add_(gradient, alpha=1 / length)
        tell(number + 1, 2 * count)
    unit_square = _product(units, units)
    del units
    for number in range(count):
        with_sum[number] = _product(_gradient(model, weights, micro_batch(number))[1], total)
        tell(count + number + 1, 2 * count)
    means = (
        (name, one.detach(), summed / count) for (name, one), summed in zip(parameters.items(), total, strict=True)
    )
    return ProbedGradients(tuple(losses), Sums(squares, with_sum, unit_square), scales(means))


def _gradient(model: GPT, weights: Sequence[Tensor], batch: MicroBatch) -> tuple[float, Sequence[Tensor]]:
    """Return the mean loss of a micro-batch, in nats per token, and its gradient of each weight."""
    ids, targets = batch
    loss = model(ids, targets) / targets.numel()
    return loss.item(), torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)


def _product(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the dot product over all parameters, in float64."""
    return sum(float(torch.dot(a.flatten().double(), b.flatten().double())) for a, b in zip(first, second, strict=True))
