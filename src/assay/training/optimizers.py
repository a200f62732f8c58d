"""AdamW (arXiv:1711.05101) as a recipe, with weight decay on matrices and embeddings only.

A recipe, because an optimizer must be made from the live parameters: one made over a model on the meta device owns
nothing once that is materialised. The baseline's is torch's plain loop, one tensor after the other: neither `foreach`
nor `fused`, both written out, since torch chooses by device where they are left open.
"""

from collections.abc import Callable
from typing import Any

import torch

from assay.config import TrainingConfig
from assay.step.program import NamedParameters, OptimizerLike

OptimizerRecipe = Callable[[NamedParameters], OptimizerLike]


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: tensors of two or more dimensions decay, biases and gains do not."""
    matrices = [parameter for _, parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for _, parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(training: TrainingConfig) -> OptimizerRecipe:
    """The baseline's AdamW."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return torch.optim.AdamW(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            foreach=False,
            fused=False,
        )

    return recipe
