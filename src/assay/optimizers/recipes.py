"""Torch's optimizers as recipes, with weight decay on matrices and embeddings only.

A recipe, because an optimizer must be made from the live parameters: one made over a model on the meta device owns
nothing once that is materialised. Which kernel runs is written out everywhere (one tensor after the other: neither
`foreach` nor `fused`), since torch chooses by device where it is left open, and in every parameter group, since a group
that brings its own choice keeps it whatever the optimizer is told.
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
    """AdamW (arXiv:1711.05101); the baseline's is the plain loop."""

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
    """Adam (arXiv:1412.6980) with weight decay as a part of the gradient, one tensor after the other."""

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
    """Stochastic gradient descent, one tensor after the other; weight decay is a part of the gradient."""

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
    """Adafactor (arXiv:1804.04235), one tensor after the other; its step is relative to the size of the weight."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = decay_groups(parameters, training.weight_decay)
        return torch.optim.Adafactor(groups, lr=training.learning_rate, foreach=False)

    return recipe
