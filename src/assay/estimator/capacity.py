"""Search for what fits: the largest batch, context, depth and width whose step stays within some memory.

Each is found by the ledger alone, with everything else as configured. The peak grows with each of the four. It has the
tensors of a step and the most scratch that a library may take from torch's allocator. Both come on top of what a
started process holds.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from assay.config.base import Frozen
from assay.config.loading import load
from assay.config.run import Run
from assay.errors import UsageError
from assay.estimator.estimate import estimate
from assay.hardware import Machine

_LARGEST = {"training.batch_size": 2**24, "model.context_length": 2**24, "model.n_layer": 2**12, "model.n_embd": 2**18}
"""Each setting that is searched, with the largest value that is tried."""
_STRIDE = 16
"""Largest factor from one count that fits to the next that is tried."""


class Largest(Frozen):
    """The largest value of one setting within a budget of memory."""

    key: str
    configured: int
    unit: int
    """The setting grows in multiples of this number."""
    value: int | None
    """None if not even the smallest value fits."""
    peak_bytes: int
    """Peak at the value, or at the smallest one if that does not fit."""
    next_bytes: int | None
    """Peak at the next larger value, which is over the budget; None if none larger was tried."""


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


def capacity(run: Run, budget_bytes: int, machine: Machine) -> tuple[Largest, ...]:
    """Return the largest batch, context, depth and width of a run within a budget, each on its own.

    Raises `UsageError` if the run cannot be predicted.
    """
    peak_bytes(run, machine)
    return tuple(largest(run, key, budget_bytes, machine) for key in _LARGEST)


def largest(run: Run, key: str, budget_bytes: int, machine: Machine) -> Largest:
    """Return the largest value of one setting within a budget. Raises `UsageError` if no value can be predicted."""
    configured = _value(run, key)

    @cache
    def peak(value: int) -> int:
        return peak_bytes(load(run, [f"{key}={value}"]), machine)

    unit = _unit(peak, configured)
    most = _most(lambda count: peak(count * unit), budget_bytes, _LARGEST[key] // unit)
    next_bytes = peak((most + 1) * unit) if most < _LARGEST[key] // unit else None
    return Largest(
        key=key,
        configured=configured,
        unit=unit,
        value=most * unit or None,
        peak_bytes=peak(max(1, most) * unit),
        next_bytes=next_bytes,
    )


def peak_bytes(run: Run, machine: Machine) -> int:
    """Return the most that an allocator may need in a step, on any rank: `Estimate.most_bytes`."""
    found = estimate(run, machine)
    ranks = (found, *(estimate(run, machine, rank) for rank in range(1, found.run.ranks)))
    return max(one.most_bytes for one in ranks)


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
