"""Learning rates as functions of the step, set before the step's gradients are computed.

Both schedules start with a linear warm-up whose first step is not zero: η·(i+1)/(w+1) for i < w. Then `cosine` falls
along half a cosine from η at step w to the minimum at step `decay_steps`, and stays there; `constant` stays at η. This
is nanoGPT's `get_lr`, so that runs can be compared with its runs.
"""

import math
from collections.abc import Callable

from assay.config import TrainingConfig


def schedule(training: TrainingConfig) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, counted from 0."""
    peak, warmup = training.learning_rate, training.warmup_steps
    after = cosine(training) if training.schedule == "cosine" else lambda step: peak

    def rate(step: int) -> float:
        return peak * (step + 1) / (warmup + 1) if step < warmup else after(step)

    return rate


def describe_bend(before: TrainingConfig, after: TrainingConfig, done: int) -> str | None:
    """Return a sentence if a run that goes on after `done` steps with other settings has other rates; else None."""
    was, now = schedule(before), schedule(after)
    if done == 0 or all(was(step) == now(step) for step in (done, done + 1, max(before.steps, after.steps))):
        return None
    return (
        f"resumed after {done} steps with training.steps={after.steps} in place of {before.steps}, which bends the "
        f"schedule: the learning rate goes from {was(done - 1):.3g} to {now(done):.3g}, and would have been "
        f"{was(done):.3g}; training.decay_steps, set from the start, keeps it"
    )


def cosine(training: TrainingConfig) -> Callable[[int], float]:
    """Return a cosine from `learning_rate` after the warm-up to `min_learning_rate` at `decay_steps` and later.

    If `decay_steps` is not set, the run's `steps` are used: the step after the last one has the minimum.
    """
    low, start = training.min_learning_rate, training.warmup_steps
    end = training.decay_steps or training.steps

    def rate(step: int) -> float:
        if step >= end:
            return low
        through = (step - start) / (end - start)
        share = 0.5 * (1.0 + math.cos(math.pi * through))
        return low + share * (training.learning_rate - low)

    return rate
