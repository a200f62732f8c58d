"""Torch's optimizers as recipes, with weight decay on matrices and embeddings only.

A recipe builds an optimizer from live parameters. An optimizer over a model on the meta device would own nothing once
that is materialized. Every recipe names its kernel (the plain loop is neither `foreach` nor `fused`), since torch
otherwise chooses by device. The choice must reach every parameter group: a group with a choice of its own ignores the
optimizer's argument.
"""

from collections.abc import Callable
from typing import Literal

import torch

from assay.config import TrainingConfig
from assay.optimizers.groups import by_mesh, decay_groups
from assay.step.program import NamedParameters, OptimizerLike

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
