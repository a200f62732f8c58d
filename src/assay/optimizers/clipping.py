"""Clip gradients to their global norm inside the fused update, without a pass over them and without a read.

torch's fused kernels divide each gradient by `grad_scale` as they read it, and leave weight and moments as they were if
`found_inf` is 1: that is how a loss scaler skips an update. Here the first is max(1, (norm + ε) / clip), the inverse of
the factor of clipping, and the second says whether the norm is finite. Both are computed on the device.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.step.program import Step

_EPSILON = 1e-6
"""Number added to the norm, as in `torch.nn.utils.clip_grad_norm_`."""


def clipping_inside(clip: float) -> Callable[[Step], Tensor]:
    """Return the update whose optimizer clips to the global norm `clip`; it returns the norm before clipping.

    A norm that is not finite leaves weights and moments as they were.
    """

    def update(step: Step) -> Tensor:
        scale, optimizer = step.program.precision.loss_scale, _scaling(step.optimizer)
        scale.unscale(step)
        norm = step.program.gradient_norm(step)
        if not scale.skip(step, norm):
            optimizer.grad_scale, optimizer.found_inf = divisor(norm, clip), _not_finite(norm)
            optimizer.step()
        for _, parameter in step.named_parameters():
            parameter.grad = None
        return norm

    return update


def divisor(norm: Tensor, clip: float) -> Tensor:
    """Return the number by which gradients of a norm are divided to be clipped: 1 if the norm is not above `clip`."""
    return torch.where(norm > clip, (norm + _EPSILON) / clip, 1.0)


def _not_finite(norm: Tensor) -> Tensor:
    """Return 1 if a norm is not finite, else 0, in three launches; `isfinite` alone has four."""
    return torch.logical_not(norm < math.inf).float()


def _scaling(optimizer: Any) -> Any:
    """Return the optimizer. Raises `TypeError` if it has no kernel that divides gradients."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise TypeError("another optimization replaced the optimizer that clips inside its kernel")
    return optimizer
