"""AdamW (arXiv:1711.05101) whose two moments are kept in bfloat16, and whose arithmetic is as wide as the gradient's.

Both moments are widened, updated, used for the step while they are wide, and only then rounded to the nearest number of
8 bits. A moment that changes by less than half of its last bit in a step stays what it was: a second moment that should
decay by 1 − β₂ below 2⁻⁸ never would (arXiv:2110.02861 names the same limit).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.config import TrainingConfig
from assay.optimizers.groups import Groups, decay_groups
from assay.optimizers.one_by_one import OneByOne
from assay.step.program import NamedParameters, OptimizerLike

_MOMENTS = ("exp_avg", "exp_avg_sq")


class NarrowAdamW(OneByOne):
    """Four bytes of state a parameter."""

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Torch widens loaded state to the parameter's dtype; what was written is bfloat16, so nothing is rounded."""
        super().__setstate__(state)
        for entries in self.state.values():
            entries.update({name: entries[name].to(torch.bfloat16) for name in _MOMENTS})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Torch's arithmetic, on widened moments."""
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
    """AdamW with moments in bfloat16 as a recipe."""
    betas = (training.beta1, training.beta2)
    return lambda parameters: NarrowAdamW(
        decay_groups(parameters, training.weight_decay), training.learning_rate, betas, training.epsilon
    )
