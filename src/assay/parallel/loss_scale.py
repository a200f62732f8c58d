"""A loss scale that follows the gradients (arXiv:1710.03740): float16 has no number between 0 and 6e-8.

The loss is multiplied before it is differentiated, and gradients are divided before they are measured. Where one
overflows, the update is skipped and the scale halved; after 2000 updates in a row it is doubled (torch's `GradScaler`,
whose kernel divides). That class is not used itself: it divides what an optimizer holds, which under ZeRO has no
gradients yet, and finds overflows on one rank only. Here the global norm decides, which every rank has alike: it is
finite when all gradients are. At the smallest scale nothing is skipped any more, so that an overflow that no scale
heals, of a forward pass for instance, ends the run as diverged.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from assay.parallel.shards import local
from assay.step.program import LossScale, Step

GROWTH_INTERVAL = 2000
"""Updates in a row after which the scale doubles."""
SMALLEST = 1.0


@dataclass
class DynamicLossScale(LossScale):
    """A power of two, and how many updates it has stood."""

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
