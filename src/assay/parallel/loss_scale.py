"""A dynamic loss scale (arXiv:1710.03740): float16 has no number between 0 and 6e-8.

The loss is multiplied before backward, and gradients are divided before their norm is computed. If a gradient
overflows, the update is skipped and the scale halved. After 2000 updates in a row the scale is doubled. This is the
rule of torch's `GradScaler`, whose kernel divides the gradients. The class itself is not used. It divides the gradients
of the optimizer's parameters, which do not exist yet under ZeRO, and finds overflows on one rank only. Here the global
norm decides, which is equal on every rank and finite if all gradients are. At the smallest scale no update is skipped.
An overflow that no scale avoids, for instance in the forward pass, therefore ends the run as diverged.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from assay.parallel.dtensor import local
from assay.step.program import LossScale, Step

GROWTH_INTERVAL = 2000
"""Number of updates in a row after which the scale doubles."""
SMALLEST = 1.0


@dataclass
class DynamicLossScale(LossScale):
    """A power of two as `value`; `stood` counts the updates since it last changed."""

    value: float = 2.0**16
    stood: int = 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.value

    def unscale(self, step: Step) -> None:
        gradients = [local(one.grad) for _, one in step.named_parameters() if one.grad is not None]
        found, inverse = (torch.full((), number, device=gradients[0].device) for number in (0.0, 1 / self.value))
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)

    def skip(self, step: Step, norm: Tensor) -> bool:
        if math.isfinite(norm.item()):
            self.stood += 1
            if self.stood == GROWTH_INTERVAL:
                self.value, self.stood = 2 * self.value, 0
            return False
        if self.value <= SMALLEST:
            return False
        self.value, self.stood = self.value / 2, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.stood = state["value"], state["stood"]
