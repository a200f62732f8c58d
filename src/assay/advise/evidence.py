"""Whether a technique touches the loss, and by what evidence.

- Exact and reassociated techniques keep it by construction, and each run proves their values.
- A lossy one is held against a measurement of a like run: the change of the validation loss with its interval. Below
  the limit it is kept, and a change that is surely above it is refused.
- Without such a measurement, or with an interval that decides nothing, published practice decides; a limit of zero
  needs a measurement.
- A lossy rule of the update is advised if nothing fits without it, or if its gain of time exceeds the stated margin.
- Techniques that train differently are never part of an answer; they are listed by themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.advise.elements import Stack
from assay.optimizations.optimization import Numerics, Optimization
from assay.units import format_percent


@dataclass(frozen=True)
class LossChange:
    """Measured change of the validation loss of a like run, as a fraction of the baseline's."""

    change: float
    interval: tuple[float, float] | None
    """95 % interval of the change; None if it has none."""
    source: str
    """Configuration, device and date of the measurement."""

    @property
    def lower(self) -> float:
        """Lower end of the interval."""
        return self.change if self.interval is None else self.interval[0]

    @property
    def upper(self) -> float:
        """Upper end of the interval."""
        return self.change if self.interval is None else self.interval[1]


def must_earn(one: Optimization) -> bool:
    """True if a technique rounds what the optimizer keeps, so that memory or a sure gain of time must speak for it."""
    return one.promised is Numerics.LOSSY and "optimizer" in one.claims


Losses = Mapping[str, LossChange]
"""Measured changes of like runs by the name of a technique."""
_KEPT = (Numerics.EXACT, Numerics.REASSOCIATED)


def numerics(stack: Stack) -> Numerics:
    """Return the loosest promise of a stack."""
    return max((each.one.promised for each in stack), key=list(Numerics).index, default=Numerics.EXACT)


def deciding(one: Optimization, losses: Losses, limit: float | None) -> LossChange | None:
    """Return the measurement that decides on a lossy technique.

    It is surely within the limit or beyond it, or no published practice is there to decide.
    """
    found = None if one.promised in _KEPT else losses.get(one.name())
    if found is None or not one.practice or limit is None:
        return found
    return found if found.upper <= limit or found.lower > limit else None


def added_loss(one: Optimization, losses: Losses, limit: float) -> float | None:
    """Return the share that a technique may add to the loss, 0 by construction or practice; None if it is not kept."""
    if one.promised in _KEPT:
        return 0.0
    found = deciding(one, losses, limit)
    if found is not None:
        return max(0.0, found.upper) if found.upper <= limit else None
    return 0.0 if one.practice and limit > 0 else None


def keeps(stack: Stack, losses: Losses, limit: float | None) -> bool:
    """True if a stack changes the loss by at most `limit`, as far as that is known; always if there is no limit."""
    if limit is None:
        return True
    parts = [added_loss(each.one, losses, limit) for each in stack]
    return None not in parts and sum(part or 0.0 for part in parts) <= limit


def reason(one: Optimization, losses: Losses, limit: float | None) -> str:
    """Return in words whether a technique touches the loss, and how that is known."""
    if one.promised in _KEPT:
        return one.promised.value
    found = deciding(one, losses, limit)
    if found is not None:
        return f"measured {format_percent(found.change)}, at most {format_percent(found.upper)}"
    return f"kept by {one.practice}" if one.practice else f"{one.promised.value}; not known here"
