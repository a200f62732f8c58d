"""Intervals of a fitted law, by the bootstrap: of its constants, of its optimum, and of a loss that it predicts.

Huber's objective is no likelihood, so nothing follows from its curvature. Points are drawn with replacement, and the
law is fitted anew. The 2.5 % and 97.5 % quantiles of what follows from these laws are an interval. That of a single new
loss also has the residuals of the fit, drawn at random.

The law itself is taken as true. Far outside of the fitted points this is too narrow, and `extrapolation` widens it. A
fit to Chinchilla's points below 1e20 FLOPs has 70 % of the other points in these intervals, and not 95 %.
"""

from collections.abc import Callable, Sequence

import numpy as np

from assay.scaling.fitting import FitResult
from assay.scaling.laws.base import Law, log_losses
from assay.scaling.points import Floats, Points

_LOW, _HIGH = 0.025, 0.975
LEAST_DRAWS = 20
"""Fewer draws have no quantile of 2.5 %."""

Interval = tuple[float, float]


def interval(laws: Sequence[Law], figure: Callable[[Law], float]) -> Interval:
    """Return the interval of a figure that follows from a law."""
    return quantiles([figure(law) for law in laws])


def quantiles(figures: Sequence[float]) -> Interval:
    """Return the interval of a figure from its draws."""
    low, high = np.quantile(figures, (_LOW, _HIGH))
    return float(low), float(high)


def of_losses(found: FitResult, laws: Sequence[Law], points: Points, seed: int = 0) -> tuple[Floats, Floats]:
    """Return both ends of the interval of each point's loss, by the law and the residuals of its fit."""
    chance = np.random.default_rng(seed)
    logs = log_losses(laws, points)
    count, constants = len(found.points), len(found.law.values)
    # The constants took part of the scatter with them.
    residuals = found.residuals * np.sqrt(count / max(1, count - constants))
    noise = chance.choice(residuals, size=logs.shape)
    # A draw far off may have a loss beyond the largest number, but its logarithm is a number.
    low, high = np.exp(np.quantile(logs + noise, (_LOW, _HIGH), axis=0))
    return low, high
