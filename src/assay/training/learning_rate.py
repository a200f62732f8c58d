"""Learning rates as functions of the step, set before the step's gradients are computed.

All schedules start with a linear warm-up whose first step is not zero: η·(i+1)/(w+1) for i < w. Then `cosine` falls
along half a cosine from η at step w to the minimum at step `decay_steps`, and stays there; `constant` stays at η. This
is nanoGPT's `get_lr`, so that runs can be compared with its runs. `wsd` (arXiv:2404.06395) stays at η and falls
linearly in the last part of its steps (arXiv:2405.18392). So runs of several lengths share all but their ends.
"""

import math
from collections.abc import Callable

from assay.config import TrainingConfig


def schedule(training: TrainingConfig) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, counted from 0."""
    peak, warmup = training.learning_rate, training.warmup_steps
    shapes = {"cosine": cosine, "constant": lambda training: lambda step: peak, "wsd": stable_then_linear}
    after = shapes[training.schedule](training)

    def rate(step: int) -> float:
        return peak * (step + 1) / (warmup + 1) if step < warmup else after(step)

    return rate


def describe_bend(before: TrainingConfig, after: TrainingConfig, done: int) -> str | None:
    """Return a sentence if a run goes on with settings that give its last step of `done` another rate; else None.

    Two schedules that differ later part without a bend: a constant rate may fall where another stays.
    """
    was, now = schedule(before), schedule(after)
    if done == 0 or was(done - 1) == now(done - 1):
        return None
    remedy = "training.decay_steps, set from the start, keeps it"
    if after.schedule == "wsd":
        remedy = f"a branch from a step up to {decay_start(before)} keeps it (assay train --branch RUN@STEP)"
    return (
        f"resumed after {done} steps with training.steps={after.steps} in place of {before.steps}, which bends the "
        f"schedule: the learning rate goes from {was(done - 1):.3g} to {now(done):.3g}, and would have been "
        f"{was(done):.3g}; {remedy}"
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


def stable_then_linear(training: TrainingConfig) -> Callable[[int], float]:
    """Return a rate that stays at its peak, and falls linearly to the minimum at the step where `cosine` has it."""
    start, end = decay_start(training), training.decay_steps or training.steps
    peak, low = training.learning_rate, training.min_learning_rate

    def rate(step: int) -> float:
        if step >= end:
            return low
        return peak if step <= start else low + (peak - low) * (end - step) / (end - start)

    return rate


def decay_start(training: TrainingConfig) -> int:
    """Return the last step of `wsd` at its peak: `decay_fraction` of the steps follow, and the warm-up precedes."""
    end = training.decay_steps or training.steps
    return max(training.warmup_steps, end - max(1, round(training.decay_fraction * end)))
