"""Scaling laws: fit one to points, test it on larger runs, and ask published ones for the best size."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.asking.batch import batch
from assay.api.asking.optimal import growth, optimal
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.scaling.fitted import FittedLaw

__all__ = ["DRAWS", "batch", "fit", "growth", "optimal"]

DRAWS = 200
"""Draws of a bootstrap by default."""


def fit(
    path: Path | str, *, drop: int = 0, below_flops: float | None = None, draws: int = DRAWS, seed: int = 0
) -> "FittedLaw":
    """Fit L(N, D) = E + A/N^α + B/D^β to the points of a CSV file, with intervals by the bootstrap.

    `drop` leaves out the points with the highest losses. With `below_flops` only points with less compute are fitted,
    and the others test the law. Raises `UsageError` for a faulty file, and if too few points are left.
    """
    from assay.scaling import parametric
    from assay.scaling.extrapolation import extrapolation
    from assay.scaling.fitted import FittedLaw, with_held_out
    from assay.scaling.points import LEAST_POINTS, read_points

    every = read_points(Path(path))
    if drop < 0 or draws < 2:
        raise UsageError("the number of dropped points cannot be negative, and a bootstrap needs at least 2 draws")
    points = every.without_highest(drop) if drop else every
    fitted = points if below_flops is None else points.where(points.flops < below_flops)
    if len(fitted) < LEAST_POINTS:
        raise UsageError(f"{len(fitted)} points are left to fit; a law needs at least {LEAST_POINTS}")
    found = parametric.fit(fitted)
    laws = parametric.bootstrap(found, draws, seed)
    law = FittedLaw(found, tuple(laws), drop, extrapolation=extrapolation(found))
    return law if below_flops is None else with_held_out(law, points, below_flops)
