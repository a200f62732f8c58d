"""A fitted law with its intervals, and its test on points with more compute than those of the fit."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from assay.scaling.extrapolation import Extrapolation, widened
from assay.scaling.interval import Interval, interval, of_losses
from assay.scaling.parametric import Fit, Parametric
from assay.scaling.points import Floats, Points

_IDENTIFIED = 2.0
"""Largest ratio of the ends of an interval for which the points identify a constant."""


@dataclass(frozen=True)
class HeldOut:
    """Points with more compute than those of a fit, and how the law predicts them."""

    count: int
    below_flops: float
    """Points with fewer FLOPs were fitted."""
    mean_error: float
    """Mean of the absolute relative errors of predicted losses."""
    covered: float
    """Share of the losses within their 95 % intervals."""
    covered_if_law_is_true: float
    """Share of the losses within their intervals by the bootstrap alone."""


@dataclass(frozen=True)
class FittedLaw:
    """A fitted parametric law with its intervals."""

    fit: Fit
    draws: tuple[Parametric, ...]
    dropped: int
    """Points with the highest losses that were left out."""
    held_out: HeldOut | None = None
    extrapolation: Extrapolation | None = None
    """Growth of errors beyond the fitted compute; None if the points are too few for hold-outs among them."""

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Constants whose interval has ends that differ by more than a factor of two."""
        return tuple(name for name, (low, high) in self.intervals.items() if high > _IDENTIFIED * low)

    def intervals_of(self, points: Points) -> tuple[Floats, Floats]:
        """Return both ends of the 95 % interval of a new loss at each point."""
        ends = of_losses(self.fit, self.draws, points)
        return ends if self.extrapolation is None else widened(ends, self.fit, points, self.extrapolation)

    @property
    def intervals(self) -> dict[str, Interval]:
        """95 % interval of each constant."""
        return {name: interval(self.draws, partial(_constant, name)) for name in self.fit.law.printed}


def with_held_out(found: FittedLaw, points: Points, below: float) -> FittedLaw:
    """Return the law with its test on the points from so many FLOPs on."""
    points = points.where(points.flops >= below)
    if not len(points):
        return found
    errors = np.abs(found.fit.law.loss(points.parameters, points.tokens) / points.loss - 1)
    covered = (
        _covered(ends, points) for ends in (found.intervals_of(points), of_losses(found.fit, found.draws, points))
    )
    return replace(found, held_out=HeldOut(len(points), below, float(errors.mean()), *covered))


def _covered(ends: tuple[Floats, Floats], points: Points) -> float:
    return float(np.mean((ends[0] <= points.loss) & (points.loss <= ends[1])))


def _constant(name: str, law: Parametric) -> float:
    return law.printed[name]
