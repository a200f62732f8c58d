"""Search for what fits: the largest batch, context, depth and width whose step stays within some memory.

Each is found by the ledger alone, with everything else as configured. The need grows with each of the four. It has the
tensors of a step as an allocator serves them, and the scratch that a library may take at that instant. Both come on top
of what a started process holds, unless the budget is that of the whole process or of a device (`device_memory`).
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from assay.config.base import Frozen
from assay.config.loading import load
from assay.config.run import Run
from assay.errors import UsageError
from assay.estimator.device_memory import need_of
from assay.estimator.estimate import Estimate, estimate
from assay.hardware import Machine
from assay.units import format_bytes

_LARGEST = {"training.batch_size": 2**24, "model.context_length": 2**24, "model.n_layer": 2**12, "model.n_embd": 2**18}
"""Each setting that is searched, with the largest value that is tried."""
_STRIDE = 16
"""Largest factor from one count that fits to the next that is tried."""


class Largest(Frozen):
    """The largest value of one setting within a budget of memory."""

    key: str
    configured: int
    configured_bytes: int
    """Need of the run as it is configured."""
    unit: int
    """The setting grows in multiples of this number."""
    value: int | None
    """None if not even the smallest value fits."""
    peak_bytes: int
    """Need at the value, or at the smallest one if that does not fit."""
    next_bytes: int | None
    """Need at the next larger value, which is over the budget; None if none larger was tried."""


class Fitting(Frozen):
    """The largest value of one setting, and what a short run with it measured."""

    largest: Largest
    measured_bytes: int | None = None
    """Measured peak of tensors and library scratch; None if it was not verified."""
    failure: str = ""
    """Reason why the verifying run did not end as done."""

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        verified = {"measured_bytes": self.measured_bytes, "failure": self.failure or None}
        return self.largest.model_dump(mode="json") | verified


class Capacity(list[Fitting]):
    """The largest batch, context, depth and width within a budget."""

    def __init__(self, found: Iterable[Fitting], budget_bytes: int, of: str) -> None:
        super().__init__(found)
        self.budget_bytes = budget_bytes
        self.of = of
        """Memory that the budget limits: tensors, process or device."""


def capacity(run: Run, budget_bytes: int, machine: Machine, of: str = "tensors") -> tuple[Largest, ...]:
    """Return the largest batch, context, depth and width of a run within a budget, each on its own.

    The budget limits tensors, the process or the device. Raises `UsageError` if the run cannot be predicted, and if no
    smaller value of any setting fits.
    """
    peak_bytes(run, machine, of)
    found = tuple(largest(run, key, budget_bytes, machine, of) for key in _LARGEST)
    if all(one.value is None for one in found):
        least = min(found, key=lambda one: one.peak_bytes)
        raise UsageError(
            f"nothing fits into {format_bytes(budget_bytes)}, even with the smallest batch, context, depth or width "
            f"alone; the smallest budget that would do is {least.peak_bytes} bytes ({format_bytes(least.peak_bytes)}), "
            f"with {least.key}={least.unit}"
        )
    return found


def largest(run: Run, key: str, budget_bytes: int, machine: Machine, of: str = "tensors") -> Largest:
    """Return the largest value of one setting within a budget. Raises `UsageError` if no value can be predicted."""
    configured = _value(run, key)

    @cache
    def peak(value: int) -> int:
        return peak_bytes(load(run, [f"{key}={value}"]), machine, of)

    unit = _unit(peak, configured)
    most = _most(lambda count: peak(count * unit), budget_bytes, _LARGEST[key] // unit)
    next_bytes = peak((most + 1) * unit) if most < _LARGEST[key] // unit else None
    return Largest(
        key=key,
        configured=configured,
        configured_bytes=peak(configured),
        unit=unit,
        value=most * unit or None,
        peak_bytes=peak(max(1, most) * unit),
        next_bytes=next_bytes,
    )


def peak_bytes(run: Run, machine: Machine, of: str = "tensors") -> int:
    """Return the most memory that a step needs on any rank, as far as the budget limits it.

    Raises `UsageError` if `of` is not ``tensors``, ``process`` or ``device``, or the run has no such memory.
    """
    return peak_of(estimate(run, machine), of)


def peak_of(first: Estimate, of: str) -> int:
    """Return the same for a run whose first rank is estimated already."""
    others = (estimate(first.run, first.machine, rank) for rank in range(1, first.run.ranks))
    return max(map(need_of(of), (first, *others)))


def _unit(peak: Callable[[int], int], configured: int) -> int:
    """Return the smallest divisor of the configured value that is possible on its own."""
    for divisor in range(1, configured + 1):
        if configured % divisor == 0:
            try:
                peak(divisor)
            except UsageError:
                continue
            return divisor
    return configured


def _most(peak: Callable[[int], int], budget: int, largest: int) -> int:
    """Return the largest count up to `largest` whose peak is within the budget, if peaks grow; 0 if none is.

    Counts are guessed by a line through two known ones, because the ledger of many layers takes long. If a guess
    shrinks the gap by less than half, the next count halves it.
    """
    low, least, high, most = 0, 0, 1, peak(1)
    while most <= budget:
        if high == largest:
            return largest
        guess = high + 1 + (budget - most) * (high - low) // max(1, most - least)
        low, least = high, most
        high = min(guess, _STRIDE * low, largest)
        most = peak(high)
    halve = False
    while high - low > 1:
        gap = high - low
        guess = low + gap // 2 if halve else low + (budget - least) * gap // max(1, most - least)
        middle = min(max(guess, low + 1), high - 1)
        found = peak(middle)
        if found <= budget:
            low, least = middle, found
        else:
            high, most = middle, found
        halve = not halve and high - low > gap // 2
    return low


def _value(run: Run, key: str) -> int:
    room, _, name = key.partition(".")
    return int(getattr(getattr(run, room), name))
