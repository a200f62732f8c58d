"""Slow reference of a step's learning rate: the schedule's definition, written down a second time."""

import math

from assay.config import TrainingConfig


def rate(training: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step.

    Linear warm-up from peak/(w + 1) to the peak; then constant, or half a cosine down to the minimum.
    """
    peak, low, warmup = training.learning_rate, training.min_learning_rate, training.warmup_steps
    if step < warmup:
        return (step + 1) / (warmup + 1) * peak
    if training.schedule == "constant":
        return peak
    end = training.decay_steps or training.steps
    if step >= end:
        return low
    return low + (peak - low) * (1 + math.cos(math.pi * (step - warmup) / (end - warmup))) / 2
