"""The loss that a step of a user's own returns, if it returns one."""

from typing import Any

from torch import Tensor


def loss_of(returned: Any) -> float | None:
    """Return a number, or a tensor of one element, as a loss; None for anything else."""
    if isinstance(returned, Tensor) and returned.numel() == 1:
        return float(returned.detach())
    return float(returned) if isinstance(returned, int | float) and not isinstance(returned, bool) else None
