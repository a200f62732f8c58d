"""AdamW (arXiv:1711.05101) with moments kept in bfloat16 and arithmetic in the gradient's dtype.

Both moments are widened and updated. The step uses them at full width; only then are they rounded to the nearest number
of 8 bits. A moment that changes by less than half of its last bit in a step does not change. A second moment with β₂
above 1 − 2⁻⁸ would therefore never decay (arXiv:2110.02861 names the same limit).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.config import TrainingConfig
from assay.optimizers.bases import OneByOne
from assay.optimizers.recipes import Groups, decay_groups
from assay.step.program import NamedParameters, OptimizerLike

_MOMENTS = ("exp_avg", "exp_avg_sq")


class NarrowAdamW(OneByOne):
    """AdamW with four bytes of state a parameter."""

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Narrow the moments after torch has widened loaded state to the parameter's dtype.

        The stored moments are bfloat16, so this rounds nothing.
        """
        super().__setstate__(state)
        for entries in self.state.values():
            entries.update({name: entries[name].to(torch.bfloat16) for name in _MOMENTS})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Apply torch's AdamW arithmetic to widened moments."""
        beta1, beta2 = group["betas"]
        if not state:
            state["step"] = torch.tensor(0.0)
            state.update({name: torch.zeros_like(parameter, dtype=torch.bfloat16) for name in _MOMENTS})
        state["step"] += 1
        done = state["step"].item()
        mean = state["exp_avg"].to(gradient.dtype).lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].to(gradient.dtype).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(square)
        root = square.sqrt_().div_((1 - beta2**done) ** 0.5).add_(group["eps"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(mean, root, value=-group["lr"] / (1 - beta1**done))


def narrow_adamw(training: TrainingConfig) -> Callable[[NamedParameters], OptimizerLike]:
    """Return AdamW with moments in bfloat16 as a recipe."""
    betas = (training.beta1, training.beta2)
    return lambda parameters: NarrowAdamW(
        decay_groups(parameters, training.weight_decay), training.learning_rate, betas, training.epsilon
    )
