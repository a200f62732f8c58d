"""Break-even of a treatment with a longer first step: extra seconds of that step / seconds saved per later step.

A compiler does its work in the first step, which is therefore not among the timed ones. The price is the excess of that
step over a steady one, less the same excess of the baseline. The most expensive of several seeds counts, because later
ones may find compiled code on the disk.
"""

import math
from collections.abc import Iterable

from assay.config.base import Frozen
from assay.records.run import RunResult

_TELLING_STEPS = 10
"""Number of baseline steps. A first step that costs less time than they take is not reported."""


class BreakEven(Frozen):
    """Price of a first step, and the number of steps that earn it back."""

    price_seconds: float
    steps: int | None
    """Number of steps after which the run is ahead of the baseline; None if its steps are not faster."""


def break_even(both: Iterable[tuple[RunResult, RunResult]], before: float, after: float) -> BreakEven | None:
    """Return the break-even of (baseline, treated) runs; None if no first step costs enough to be reported.

    `before` and `after` are the steady seconds of a step of the baseline and of the treatment.
    """
    ahead = [(_ahead(baseline), _ahead(treated)) for baseline, treated in both]
    price = max((own - usual for usual, own in ahead if own is not None and usual is not None), default=0.0)
    if price < _TELLING_STEPS * before:
        return None
    return BreakEven(price_seconds=price, steps=math.ceil(price / (before - after)) if after < before else None)


def _ahead(result: RunResult) -> float | None:
    """Seconds of the first step beyond those of a steady one; None if either was not measured."""
    if result.first_step_seconds is None or result.step_seconds is None:
        return None
    return result.first_step_seconds - result.step_seconds.median
