"""The scale of gradients and weights by module, and the agreement and noise of gradients over batches.

Scales are of a trained model, or of one step of a program. A step's gradients are read where its program measures their
norm: unscaled, before clipping and the update. A technique that frees gradients during backward has none there.

Agreement and noise are those at the weights that a run has trained, over batches that it would train next.
The gradient of b sequences is the true gradient G plus noise with the covariance Σ/b. So the expected squared norm is
|G|² + tr(Σ)/b. The squared norms of one micro-batch and of the mean of n of them are two such equations. Their solution
is unbiased (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1):

    |G|²  = (n·|mean|² − mean|micro|²) / (n − 1)
    tr(Σ) = n·b · (mean|micro|² − |mean|²) / (n − 1)

The noise scale tr(Σ)/|G|² is about the batch size from which larger batches help little. No pair of gradients has to be
held together: with unit vectors uᵢ = gᵢ/|gᵢ|, the cosines of all pairs sum to |Σ uᵢ|² − n.

The model is the plain one, without optimizations: a technique changes how a gradient is computed, and here is asked
what the gradient is. Dropout is off, and nothing is updated. Each gradient is computed twice and never kept. The first
pass gives the sum of all, and the second one the product of each with that sum. So memory does not grow with their
number. It is 24 bytes a parameter, beside the model and the activations of one micro-batch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from assay.data import Batches
from assay.data.prepared_folder import open_prepared
from assay.model.gpt import GPT
from assay.records.gradients import GradientProbe, ModuleGradient, NoiseScale
from assay.step.program import Step


def noting(step: Step, found: list[ModuleGradient]) -> Step:
    """Return the step with a program that also puts the scale of each module's gradient into `found`."""
    measure = step.program.gradient_norm

    def gradient_norm(now: Step) -> Tensor:
        named = ((name, one, one.grad) for name, one in now.named_parameters())
        found[:] = scales((name, one.detach(), gradient) for name, one, gradient in named if gradient is not None)
        return measure(now)

    return replace(step, program=replace(step.program, gradient_norm=gradient_norm))


def scales(gradients: Iterable[tuple[str, Tensor, Tensor]]) -> tuple[ModuleGradient, ...]:
    """Return the scale of each module from the name, weight and gradient of each parameter, in their order."""
    groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, weight, gradient in gradients:
        groups.setdefault(module_of(name), []).append((weight, gradient))
    return tuple(_module(title, members) for title, members in groups.items())


def module_of(parameter: str) -> str:
    """Return the module of a parameter: the embedding, a block by its number, the final norm, or the head."""
    parts = parameter.split(".")
    if parts[0] == "blocks":
        return f"block {int(parts[1]) + 1}"
    return "final norm" if parts[:2] == ["head", "norm"] else parts[0]


def _module(title: str, members: list[tuple[Tensor, Tensor]]) -> ModuleGradient:
    count = sum(weight.numel() for weight, _ in members)
    weights, gradients = (sum(map(_squares, each)) for each in zip(*members, strict=True))
    return ModuleGradient(
        module=title,
        parameters=count,
        gradient_rms=sqrt(gradients / count),
        gradient_norm=sqrt(gradients),
        weight_rms=sqrt(weights / count),
    )


def _squares(values: Tensor) -> float:
    """Return the sum of squares in float64: squares of small gradients are below the smallest number of float16."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


MicroBatch = tuple[Tensor, Tensor]
"""Ids and targets, int64, each `[sequences, context_length]`."""


Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums over n gradients gᵢ, whose sum is S."""

    squares: Vector
    """|gᵢ|² of each, `[n]`."""
    with_sum: Vector
    """gᵢ·S of each, `[n]`."""
    unit_square: float
    """|Σ gᵢ/|gᵢ||²; of no use if a gradient is zero."""

    @property
    def square_of_mean(self) -> float:
        """Squared norm of the mean gradient."""
        return max(0.0, float(self.with_sum.sum())) / len(self.squares) ** 2


def mean_cosine(sums: Sums) -> float | None:
    """Return the mean cosine between two different gradients; None for fewer than two, or if one is zero."""
    count = len(sums.squares)
    if count < 2 or not sums.squares.all():
        return None
    return (sums.unit_square - count) / (count * (count - 1))


def noise_scale(sums: Sums, sequences: int) -> NoiseScale | None:
    """Return the noise scale from gradients of `sequences` sequences each.

    The result is None for fewer than two gradients, and if the estimate of |G|² is not positive.
    """
    count = len(sums.squares)
    if count < 2:
        return None
    squared, noise = _solved(count, sequences, np.asarray(sums.square_of_mean), sums.squares.mean())
    if squared <= 0:
        return None
    return NoiseScale(
        sequences=float(noise / squared),
        standard_error=_standard_error(sums, sequences),
        squared_gradient=float(squared),
        noise=float(noise),
    )


def _solved(count: int, sequences: int, of_mean: Vector, of_one: Vector) -> tuple[Vector, Vector]:
    """Return the estimates of |G|² and tr(Σ) from |mean|² and mean|micro|²."""
    return (count * of_mean - of_one) / (count - 1), count * sequences * (of_one - of_mean) / (count - 1)


def _standard_error(sums: Sums, sequences: int) -> float | None:
    """Return the jackknife's standard error: every gradient is left out once (Efron 1982)."""
    count = len(sums.squares)
    if count < 3:
        return None
    kept = count - 1
    of_mean = (sums.with_sum.sum() - 2 * sums.with_sum + sums.squares) / kept**2
    squared, noise = _solved(kept, sequences, of_mean, (sums.squares.sum() - sums.squares) / kept)
    if (squared <= 0).any():
        return None
    return sqrt((count - 1) * float(np.var(noise / squared)))


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


def agreement(
    model: GPT,
    data_folder: Path,
    *,
    run: str,
    seed: int,
    steps: int,
    micro_batches: int,
    sequences: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
    notes: tuple[str, ...] = (),
) -> GradientProbe:
    """Compute the gradient of each micro-batch of `sequences` sequences, and compare them; nothing is updated.

    They are the batches after `steps` steps of a run with this seed. `tell` receives the number of gradients that are
    computed, and of all: two of each micro-batch. Raises `UsageError` if the prepared corpus is gone.
    """
    length = model.config.context_length
    source = Batches(open_prepared(data_folder).train, seed, sequences, length)

    def micro_batch(number: int) -> MicroBatch:
        ids, targets = source.at(steps + number)
        return torch.from_numpy(ids), torch.from_numpy(targets)

    each = gradients(model, micro_batch, micro_batches, tell)
    return GradientProbe(
        run=run,
        steps=steps,
        micro_batches=micro_batches,
        sequences=sequences,
        tokens_per_sequence=length,
        loss=fmean(each.losses),
        gradient_norm=sqrt(each.sums.square_of_mean),
        micro_batch_norm=sqrt(float(each.sums.squares.mean())),
        mean_cosine=mean_cosine(each.sums),
        noise_scale=noise_scale(each.sums, sequences),
        modules=each.modules,
        notes=notes,
    )
