"""Lion (arXiv:2302.06675, algorithm 2): steps of equal size in every element, by the sign of a momentum.

    u = sign(β₁·m + (1 − β₁)·g)      θ ← θ − η·(u + λ·θ)      m ← β₂·m + (1 − β₂)·g

The momentum that is kept decays more slowly than the interpolated one of the step. Torch has no Lion.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.config import TrainingConfig
from assay.optimizers.bases import OneByOne
from assay.optimizers.recipes import Groups, decay_groups
from assay.step.program import NamedParameters, OptimizerLike


class Lion(OneByOne):
    """Lion with one moment a parameter."""

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


def lion(training: TrainingConfig, betas: tuple[float, float]) -> Callable[[NamedParameters], OptimizerLike]:
    """Return Lion as a recipe."""
    return lambda parameters: Lion(decay_groups(parameters, training.weight_decay), training.learning_rate, betas)
