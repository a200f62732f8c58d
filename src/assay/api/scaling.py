"""Scaling laws: fit one to points, test it on larger runs, and ask published ones for the best size."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.scaling.fitted import FittedLaw
    from assay.scaling.published import Optimum

_LEAST, _MOST = 1e3, {"FLOPs": 1e40, "parameters": 1e20, "tokens": 1e20}
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


def optimal(
    *, flops: float | None = None, parameters: float | None = None, tokens: float | None = None
) -> "dict[str, Optimum]":
    """Return the best model size and data for a budget, for a size or for an amount of data, under each published law.

    Raises `UsageError` unless exactly one of the three is given, within a range in which there are models.
    """
    from assay.scaling.published import FRONTIERS, for_parameters, for_tokens

    asked = {"FLOPs": flops, "parameters": parameters, "tokens": tokens}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        raise UsageError("give exactly one of FLOPs, parameters and tokens")
    for name, value in given.items():
        if not _LEAST <= value <= _MOST[name]:
            raise UsageError(f"{value:g} {name} are no model's; give a number from {_LEAST:g} to {_MOST[name]:g}")
    if flops is not None:
        return {name: law.at(flops) for name, law in FRONTIERS.items()}
    if parameters is not None:
        return {name: for_parameters(law, parameters) for name, law in FRONTIERS.items()}
    return {name: for_tokens(law, given["tokens"]) for name, law in FRONTIERS.items()}
