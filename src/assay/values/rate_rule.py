"""Slow reference of a step's learning rate: the schedule's definition, written down a second time."""

import math

from assay.config import ResolvedRun, TrainingConfig
from assay.optimizations import expected_of
from assay.training.stops import WrongValues

_ERROR = 1e-6
"""Largest relative error of a rate."""
_LOWEST = 1e-12
"""Part of the peak below which a rate is rounding: the end of a cosine is a difference of nearly equal numbers."""


class LearningRates:
    """Compares the learning rate of each step of a run with the slow schedule."""

    def __init__(self, run: ResolvedRun) -> None:
        expected = expected_of(run)
        self._training, self._factor = run.training, expected.rate_factor
        self._checked = run.training.check_values and not expected.unstated

    def hold(self, step: int, used: float) -> None:
        """Raise `WrongValues` if the rate `used` of a step is not the schedule's."""
        if self._checked and (fault := rate_fault(self._training, self._factor, step, used)):
            raise WrongValues(fault)


def rate_fault(training: TrainingConfig, factor: float, step: int, used: float) -> str:
    """Return a sentence if the rate `used` is not `factor` times the schedule's rate of a step; empty if it is."""
    wanted = rate(training, step) * factor
    if abs(used - wanted) <= _ERROR * wanted + _LOWEST * training.learning_rate * factor:
        return ""
    return f"the learning rate of step {step} is {used:.6g}, and the schedule gives {wanted:.6g}"


def rate(training: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step.

    Linear warm-up from peak/(w + 1) to the peak; then constant, or half a cosine down to the minimum. `wsd` is constant
    and ends with a line down to the minimum.
    """
    peak, low, warmup = training.learning_rate, training.min_learning_rate, training.warmup_steps
    if step < warmup:
        return (step + 1) / (warmup + 1) * peak
    if training.schedule == "constant":
        return peak
    end = training.decay_steps or training.steps
    if step >= end:
        return low
    if training.schedule == "wsd":
        falling = min(max(1, round(end * training.decay_fraction)), end - warmup)
        return peak - (peak - low) * max(0, step - (end - falling)) / falling
    return low + (peak - low) * (1 + math.cos(math.pi * (step - warmup) / (end - warmup))) / 2
