"""Optima at several computes, and the power laws N ∝ C^a and D ∝ C^b through them.

D follows from C = 6·N·D, so a + b = 1, or from C as the runs count it (`scaling.accounting`). The published exponents
of approach 1 are 0.50 and 0.50, and of approach 2 0.49 and 0.51 (Hoffmann et al. 2022, table 2). Intervals are those of
a bootstrap of the runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import UsageError
from assay.scaling.accounting import PLAIN, Accounting
from assay.scaling.interval import LEAST_DRAWS, Interval, quantiles
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats

_SAME = 1e-9
"""Difference of equal exponents."""


@dataclass(frozen=True)
class PowerOfCompute:
    """A quantity at the optimum, as level · C^exponent."""

    level: float
    exponent: float
    interval: Interval | None
    """95 % interval of the exponent; None if the runs are too few for one."""

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
    accounting: Accounting = PLAIN
    """Ratio of counted FLOPs to 6·N·D."""

    def at(self, flops: float) -> tuple[float, float]:
        """Return the optimal N and D of a compute."""
        return self.size.at(flops), self.data.at(flops)


Line = tuple[float, float]
"""Exponent and logarithm of the level of N by C."""


def line(flops: Floats, parameters: Floats) -> Line:
    """Return the line through the logarithms of optima. Raises `UsageError` for fewer than two computes."""
    if len(np.unique(flops)) < 2:
        raise UsageError("a power law of the optimum needs optima at two computes or more; add budgets")
    exponent, level = np.polyfit(np.log(flops), np.log(parameters), 1)
    return float(exponent), float(level)


def optima(
    flops: Floats,
    parameters: Floats,
    drawn: Sequence[Line | None],
    warnings: Sequence[str],
    accounting: Accounting = PLAIN,
) -> Optima:
    """Return the power laws through optima, with intervals from the lines of a bootstrap; None is a draw without.

    FLOPs are as `accounting` counts them.
    """
    exponent, level = line(flops, parameters)
    exponents = [one[0] for one in drawn if one is not None]
    ends = _interval(exponents)
    grown = 1 + accounting.power  # power of N by which the FLOPs of a token grow
    per_token = np.log(FLOPS_PER_PARAMETER_AND_TOKEN * accounting.level)
    return Optima(
        flops,
        parameters,
        PowerOfCompute(float(np.exp(level)), exponent, ends),
        PowerOfCompute(
            float(np.exp(-grown * level - per_token)),
            1 - grown * exponent,
            ends and (1 - grown * ends[1], 1 - grown * ends[0]),
        ),
        len(exponents),
        (*filter(None, (accounting.warning,)), *warnings, *_cautions(len(exponents), len(drawn), ends)),
        accounting,
    )


def _interval(exponents: Sequence[float]) -> Interval | None:
    """Return the interval of an exponent; None for few draws, and if they are all the same."""
    if len(exponents) < LEAST_DRAWS or np.ptp(exponents) < _SAME:
        return None
    return quantiles(exponents)


def _cautions(kept: int, asked: int, ends: Interval | None) -> Iterator[str]:
    """Yield sentences on draws that have no optimum, and on an interval that is missing."""
    if kept < asked:
        had = "draw had no optimum within its sizes, and is" if asked - kept == 1 else "draws had no optimum, and are"
        yield f"{asked - kept} of {asked} {had} left out of the intervals."
    if ends is None:
        why = f"only {kept} draws are left" if kept < LEAST_DRAWS else "all draws are the same"
        yield f"The exponents have no interval, because {why}. More runs would give one."
