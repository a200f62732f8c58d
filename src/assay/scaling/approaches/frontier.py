"""Optima at several computes, and the power laws N ∝ C^a and D ∝ C^b through them.

D follows from C = 6·N·D, so a + b = 1. The published exponents of approach 1 are 0.50 and 0.50, and of approach 2 0.49
and 0.51 (Hoffmann et al. 2022, table 2). Intervals are those of a bootstrap of the runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import UsageError
from assay.scaling.interval import Interval, quantiles
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats


@dataclass(frozen=True)
class PowerOfCompute:
    """A quantity at the optimum, as level · C^exponent."""

    level: float
    exponent: float
    interval: Interval
    """95 % interval of the exponent."""

    def at(self, flops: float) -> float:
        """Return the quantity at a compute."""
        return float(self.level * flops**self.exponent)


@dataclass(frozen=True)
class Optima:
    """Optimal sizes at several computes, and the power laws through them."""

    flops: Floats
    parameters: Floats
    size: PowerOfCompute
    data: PowerOfCompute
    draws: int
    """Draws of the bootstrap that had an optimum."""
    warnings: tuple[str, ...] = ()
    """Sentences on what the runs do not determine."""

    def at(self, flops: float) -> tuple[float, float]:
        """Return the optimal N and D of a compute."""
        parameters = self.size.at(flops)
        return parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters


Line = tuple[float, float]
"""Exponent and logarithm of the level of N by C."""


def line(flops: Floats, parameters: Floats) -> Line:
    """Return the line through the logarithms of optima. Raises `UsageError` for fewer than two computes."""
    if len(np.unique(flops)) < 2:
        raise UsageError("a power law of the optimum needs optima at two computes or more; add budgets")
    exponent, level = np.polyfit(np.log(flops), np.log(parameters), 1)
    return float(exponent), float(level)


def optima(flops: Floats, parameters: Floats, drawn: Sequence[Line], warnings: Sequence[str]) -> Optima:
    """Return the power laws through optima, with intervals from the lines of a bootstrap."""
    exponent, level = line(flops, parameters)
    exponents = [one for one, _ in drawn] or [np.nan]
    low, high = quantiles(exponents)
    per_size = np.log(FLOPS_PER_PARAMETER_AND_TOKEN)
    return Optima(
        flops,
        parameters,
        PowerOfCompute(float(np.exp(level)), exponent, (low, high)),
        PowerOfCompute(float(np.exp(-level - per_size)), 1 - exponent, (1 - high, 1 - low)),
        len(drawn),
        tuple(warnings),
    )
