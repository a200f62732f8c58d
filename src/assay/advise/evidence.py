"""Whether a technique touches the loss, and by what evidence.

- Exact and reassociated techniques keep it by construction, and each run proves their values.
- A lossy one may be trusted as far as somebody measured it: the upper end of the interval of the change of the
  validation loss. A change whose interval is wide counts as a large one.
- Techniques that train differently are never part of an answer; they are listed by themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.advise.elements import Stack
from assay.optimizations.base import Numerics
from assay.units import format_percent


@dataclass(frozen=True)
class LossChange:
    """Measured change of the validation loss, as a fraction of the baseline's."""

    change: float
    upper: float
    """Upper end of its interval."""
    source: str
    """Configuration, device and date of the measurement."""


Losses = Mapping[str, LossChange]
"""Measured changes by the name of a technique."""
_KEPT = (Numerics.EXACT, Numerics.REASSOCIATED)


def numerics(stack: Stack) -> Numerics:
    """Return the loosest promise of a stack."""
    return max((each.one.promised for each in stack), key=list(Numerics).index, default=Numerics.EXACT)


def upper_change(stack: Stack, losses: Losses) -> float | None:
    """Return the sum of what each lossy technique may add to the loss; None if one was never measured."""
    lossy = [each.one.name() for each in stack if each.one.promised not in _KEPT]
    if any(name not in losses for name in lossy):
        return None
    return sum(max(0.0, losses[name].upper) for name in lossy)


def keeps(stack: Stack, losses: Losses, limit: float | None) -> bool:
    """True if a stack changes the loss by at most `limit`, as far as that is known; always if there is no limit."""
    if limit is None:
        return True
    upper = upper_change(stack, losses)
    return upper is not None and upper <= limit


def reason(name: str, promised: Numerics, losses: Losses) -> str:
    """Return in words whether a technique touches the loss, and how that is known."""
    if promised in _KEPT:
        return promised.value
    found = losses.get(name)
    if found is None:
        return f"{promised.value}; not measured"
    return f"measured {format_percent(found.change)}, at most {format_percent(found.upper)}"
