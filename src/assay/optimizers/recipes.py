"""Optimizers as recipes, with weight decay on matrices and embeddings only: torch's own, Lion, and Muon beside AdamW.

A recipe builds an optimizer from live parameters. An optimizer over a model on the meta device would own nothing once
that is materialized. Every recipe names its kernel (the plain loop is neither `foreach` nor `fused`), since torch
otherwise chooses by device. The choice must reach every parameter group: a group with a choice of its own ignores the
optimizer's argument.

An optimizer may have a learning rate of its own: warm-up, cosine and minimum are the run's times one factor. Decoupled
decay shrinks a weight by η·λ a step. With a learning rate that is k times as large it takes λ/k, so that weights shrink
as before (arXiv:2302.06675).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

from assay.config import TrainingConfig
from assay.cost.optimizers.matrix import is_hidden_matrix
from assay.optimizers.bases import Joined, OneByOne
from assay.step.program import NamedParameters, OptimizerLike, Program

Groups = Sequence[dict[str, Any]]


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Return two parameter groups: tensors of two or more dimensions decay, biases and gains do not."""
    matrices = [parameter for _, parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for _, parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def by_mesh(groups: Groups) -> list[dict[str, Any]]:
    """Split the groups by their tensors' device mesh: one kernel takes tensors of one mesh, or plain ones."""
    cut: dict[tuple[int, int | None], dict[str, Any]] = {}
    for index, group in enumerate(groups):
        for parameter in group["params"]:
            mesh = getattr(parameter, "device_mesh", None)
            key = (index, None if mesh is None else hash(mesh))
            cut.setdefault(key, {**group, "params": []})["params"].append(parameter)
    return list(cut.values())


OptimizerRecipe = Callable[[NamedParameters], OptimizerLike]
Kernel = Literal["plain", "foreach", "fused"]


def adamw(training: TrainingConfig, kernel: Kernel = "plain") -> OptimizerRecipe:
    """Return AdamW (arXiv:1711.05101); the baseline uses the plain loop."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = decay_groups(parameters, training.weight_decay)
        return torch.optim.AdamW(
            groups if kernel == "plain" else by_mesh(groups),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            foreach=kernel == "foreach",
            fused=kernel == "fused",
        )

    return recipe


def at_factors(training: TrainingConfig, rates: Mapping[str, float]) -> OptimizerRecipe:
    """Return AdamW, one tensor after the other, in which some parameters have their factor of the learning rate.

    Their decay is divided by it. Groups are cut where the factor changes, so that the order of tensors stays.
    """

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        factors = {id(one): rates.get(name, 1.0) for name, one in parameters}
        groups = [
            {"params": list(same), "weight_decay": whole["weight_decay"] / factor, "rate_factor": factor}
            for whole in decay_groups(parameters, training.weight_decay)
            for factor, same in groupby(whole["params"], lambda one: factors[id(one)])
        ]
        betas = (training.beta1, training.beta2)
        return torch.optim.AdamW(
            groups, lr=training.learning_rate, betas=betas, eps=training.epsilon, foreach=False, fused=False
        )

    return recipe


def adam(training: TrainingConfig) -> OptimizerRecipe:
    """Return Adam (arXiv:1412.6980) with weight decay added to the gradient, one tensor after the other."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return torch.optim.Adam(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            foreach=False,
            fused=False,
        )

    return recipe


def sgd(training: TrainingConfig, momentum: float, *, nesterov: bool) -> OptimizerRecipe:
    """Return stochastic gradient descent, one tensor after the other; weight decay is added to the gradient."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return torch.optim.SGD(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            momentum=momentum,
            nesterov=nesterov,
            foreach=False,
            fused=False,
        )

    return recipe


def adafactor(training: TrainingConfig) -> OptimizerRecipe:
    """Return Adafactor (arXiv:1804.04235), one tensor after the other; its step is relative to the weight's size."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = decay_groups(parameters, training.weight_decay)
        return torch.optim.Adafactor(groups, lr=training.learning_rate, foreach=False)

    return recipe


def at_rate(training: TrainingConfig, learning_rate: float) -> TrainingConfig:
    """Return the training with another peak learning rate.

    The minimum stays in proportion to the peak, and the decay of a step, η·λ, stays as it is.
    """
    factor = learning_rate / training.learning_rate
    changes = {
        "learning_rate": learning_rate,
        "min_learning_rate": training.min_learning_rate * factor,
        "weight_decay": training.weight_decay / factor,
    }
    return training.model_copy(update=changes)


def scale_schedule(program: Program, factor: float) -> Program:
    """Return the program with every step's learning rate multiplied by `factor`."""
    inner = program.schedule
    return replace(program, schedule=lambda step: factor * inner(step))


class Lion(OneByOne):
    """Lion (arXiv:2302.06675, algorithm 2): steps of equal size in every element, by the sign of a momentum.

        u = sign(β₁·m + (1 − β₁)·g)      θ ← θ − η·(u + λ·θ)      m ← β₂·m + (1 − β₂)·g

    The momentum that is kept decays more slowly than the interpolated one of the step. Torch has no Lion.
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Decay the weight, step along the signs, and update the moment."""
        beta1, beta2 = group["betas"]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        moment = state["exp_avg"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(moment.lerp(gradient, 1 - beta1).sign_(), alpha=-group["lr"])
        moment.lerp_(gradient, 1 - beta2)


def lion(training: TrainingConfig, betas: tuple[float, float]) -> OptimizerRecipe:
    """Return Lion as a recipe."""
    return lambda parameters: Lion(decay_groups(parameters, training.weight_decay), training.learning_rate, betas)


def muon(training: TrainingConfig, momentum: float) -> OptimizerRecipe:
    """Return Muon for the hidden matrices and AdamW for all else (kellerjordan.github.io/posts/muon, arXiv:2502.16982).

    Muon is torch's. Its steps are scaled to the size of AdamW's, 0.2·√max(rows, columns), so that both share a learning
    rate and a weight decay. AdamW updates embeddings, output weights, positions, biases and gains.
    """

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        hidden = [one for name, one in parameters if is_hidden_matrix(name, one.ndim)]
        rest = [(name, one) for name, one in parameters if not is_hidden_matrix(name, one.ndim)]
        # Given a single parameter, one of the two optimizers has none.
        return Joined([*([orthogonal(hidden)] if hidden else []), *([adamw(training)(rest)] if rest else [])])

    def orthogonal(hidden: list[torch.nn.Parameter]) -> OptimizerLike:
        return torch.optim.Muon(
            hidden,
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            momentum=momentum,
            adjust_lr_fn="match_rms_adamw",
        )

    return recipe
