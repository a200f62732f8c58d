"""A fitted law with its intervals, and its test on points with more compute than those of the fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from assay.scaling.interval import Interval, interval, of_losses
from assay.scaling.parametric import Fit, Parametric
from assay.scaling.points import Points


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


@dataclass(frozen=True)
class FittedLaw:
    """A fitted parametric law with its intervals."""

    fit: Fit
    draws: tuple[Parametric, ...]
    dropped: int
    """Points with the highest losses that were left out."""
    held_out: HeldOut | None = None

    @property
    def intervals(self) -> dict[str, Interval]:
        """95 % interval of each constant."""
        return {name: interval(self.draws, partial(_constant, name)) for name in self.fit.law.printed}


def tested(found: Fit, laws: Sequence[Parametric], points: Points, below: float) -> HeldOut | None:
    """Predict the points with at least so many FLOPs by a law that was fitted to others; None if there are none."""
    points = points.where(points.flops >= below)
    if not len(points):
        return None
    errors = np.abs(found.law.loss(points.parameters, points.tokens) / points.loss - 1)
    low, high = of_losses(found, laws, points)
    inside = (low <= points.loss) & (points.loss <= high)
    return HeldOut(len(points), below, float(errors.mean()), float(inside.mean()))


def _constant(name: str, law: Parametric) -> float:
    return law.printed[name]
