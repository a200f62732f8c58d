"""When a treatment that takes longer to begin has earned it back: seconds of its first step / seconds saved a step.

A compiler does its work in the first step, which therefore stands apart from the timed ones. What that step took beyond
a steady one, and beyond what the baseline's first step took so, is the price. Of several seeds the dearest counts: what
later ones compile they may find on the disk.
"""

import math
from collections.abc import Iterable

from assay.config.base import Frozen
from assay.runs.record import RunResult

_TELLING_STEPS = 10
"""Of the baseline: a first step that is less behind than they take is no price worth a word."""


class BreakEven(Frozen):
    """The price of a first step, and how soon it is earned."""

    price_seconds: float
    steps: int | None
    """After how many steps the run is ahead of the baseline; None where a step is not faster."""


def break_even(both: Iterable[tuple[RunResult, RunResult]], before: float, after: float) -> BreakEven | None:
    """From (baseline, treated) runs and the steady seconds of a step; None where no first step is worth a word."""
    ahead = [(_ahead(baseline), _ahead(treated)) for baseline, treated in both]
    price = max((own - usual for usual, own in ahead if own is not None and usual is not None), default=0.0)
    if price < _TELLING_STEPS * before:
        return None
    return BreakEven(price_seconds=price, steps=math.ceil(price / (before - after)) if after < before else None)


def _ahead(result: RunResult) -> float | None:
    """Seconds of the first step beyond those of a steady one."""
    if result.first_step_seconds is None or result.step_seconds is None:
        return None
    return result.first_step_seconds - result.step_seconds.median
