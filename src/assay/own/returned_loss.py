"""The loss that a step of a user's own returns, and the number of targets that it counted, if it returns them."""

from typing import Any

from torch import Tensor


def loss_of(returned: Any) -> float | None:
    """Return a number, a tensor of one element, or a pair (sum, count) as a mean loss; None for anything else."""
    targets = targets_of(returned)
    if targets is not None:
        return _number(returned[0]) / targets  # type: ignore[operator]
    return _number(returned)


def targets_of(returned: Any) -> int | None:
    """Return the count of a pair (sum, count), a whole number of at least one; None for anything else."""
    if not isinstance(returned, tuple | list) or len(returned) != 2 or _number(returned[0]) is None:
        return None
    count = _number(returned[1])
    return None if count is None or count < 1 or not count.is_integer() else int(count)


def _number(one: Any) -> float | None:
    if isinstance(one, Tensor) and one.numel() == 1:
        return float(one.detach())
    return float(one) if isinstance(one, int | float) and not isinstance(one, bool) else None
