"""AdamW (arXiv:1711.05101) with moments kept in 16 bits and arithmetic in float32.

The second moment is a square, and the square of a gradient of 1e-4 is zero in float16: torch's AdamW would divide by
zero. The root is kept instead, which is as large as the gradient. Values that are too small then vanish in both moments
at once. Each tensor is widened, updated and rounded in turn, so only one tensor's float32 copies exist at a time.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.optimizers.bases import OneByOne

_OPTIONS = ("params", "lr", "betas", "eps", "weight_decay")


class AdamW16(OneByOne):
    """AdamW over the parameter groups of a `torch.optim.AdamW`."""

    def __init__(self, groups: Iterable[Mapping[str, Any]]) -> None:
        super().__init__([{name: group[name] for name in _OPTIONS} for group in groups], {})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update in float32, and round weight and moments to their dtype."""
        (beta1, beta2), rate = group["betas"], group["lr"]
        if not state:
            state["step"] = torch.zeros(())
            state.update({name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_root")})
        state["step"] += 1
        done = state["step"].item()
        gradient = gradient.float()
        mean = state["exp_avg"].float().lerp_(gradient, 1 - beta1)
        root = state["exp_avg_root"].float().square_().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2).sqrt_()
        state["exp_avg"].copy_(mean)
        state["exp_avg_root"].copy_(root)
        root.div_((1 - beta2**done) ** 0.5).add_(group["eps"])
        moved = parameter.float().mul_(1 - rate * group["weight_decay"])
        parameter.copy_(moved.addcdiv_(mean, root, value=-rate / (1 - beta1**done)))
