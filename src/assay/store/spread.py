"""The spread of the last training losses: how jagged the end of a training curve is.

A loss still falls at the end of a run, so its plain deviation would measure the slope as well. The spread is the
deviation about the least-squares line through the losses of the last tenth of the steps.
"""

from collections.abc import Sequence
from math import isfinite, sqrt
from statistics import fmean

LEAST_STEPS = 10
"""Least number of losses that have a spread."""


def loss_spread(losses: Sequence[float | None]) -> float | None:
    """Return the standard deviation, in nats per token, of the last losses about their least-squares line.

    `losses` has the training loss of each step. The last tenth of them counts, and at least `LEAST_STEPS`. The line
    takes two degrees of freedom. The result is None for fewer losses, and if one of the last was not finite.
    """
    last = losses[-max(LEAST_STEPS, len(losses) // 10) :]
    finite = [loss for loss in last if loss is not None and isfinite(loss)]
    if len(finite) < max(LEAST_STEPS, len(last)):
        return None
    middle, mean = (len(finite) - 1) / 2, fmean(finite)
    slope = fmean((step - middle) * (loss - mean) for step, loss in enumerate(finite))
    slope /= fmean((step - middle) ** 2 for step in range(len(finite)))
    residuals = [loss - mean - slope * (step - middle) for step, loss in enumerate(finite)]
    return sqrt(sum(one * one for one in residuals) / (len(finite) - 2))
