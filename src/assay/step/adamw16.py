"""AdamW (arXiv:1711.05101) whose moments are kept in 16 bits, and whose arithmetic is done in 32.

The second moment is a square, and the square of a gradient of 1e-4 is nothing in float16: torch's AdamW would divide
by zero. So its root is kept, which is as large as the gradient itself, and what is too small to be kept is so in both
moments at once. Each tensor is lifted, updated and rounded in its turn, so that one tensor's float32 exists at a time.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

_OPTIONS = ("params", "lr", "betas", "eps", "weight_decay")


class AdamW16(torch.optim.Optimizer):
    """`groups` are those of a `torch.optim.AdamW`."""

    def __init__(self, groups: Iterable[Mapping[str, Any]]) -> None:
        super().__init__([{name: group[name] for name in _OPTIONS} for group in groups], {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    _update(weight, self._kept(weight), group)

    def _kept(self, weight: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = self.state[weight]
        if not kept:
            kept["step"] = torch.zeros(())
            kept["exp_avg"], kept["exp_avg_root"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return kept


def _update(weight: Tensor, kept: dict[str, Tensor], group: Mapping[str, Any]) -> None:
    (beta1, beta2), rate = group["betas"], group["lr"]
    kept["step"] += 1
    done = kept["step"].item()
    assert weight.grad is not None
    gradient = weight.grad.float()
    mean = kept["exp_avg"].float().lerp_(gradient, 1 - beta1)
    root = kept["exp_avg_root"].float().square_().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2).sqrt_()
    kept["exp_avg"].copy_(mean)
    kept["exp_avg_root"].copy_(root)
    root.div_((1 - beta2**done) ** 0.5).add_(group["eps"])
    moved = weight.float().mul_(1 - rate * group["weight_decay"])
    weight.copy_(moved.addcdiv_(mean, root, value=-rate / (1 - beta1**done)))
