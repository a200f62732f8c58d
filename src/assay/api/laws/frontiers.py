"""Approaches that fit an optimum and no loss: parabolas at equal compute, and the envelope of training curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.laws.fitting import DRAWS
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.scaling.approaches import Envelope, IsoFlop, TrainingCurve
    from assay.scaling.points import Points


def isoflop(
    points: "Points | Path | str", *, draws: int = DRAWS, seed: int = 0, columns: str | None = None
) -> "IsoFlop":
    """Fit approach 2 of Hoffmann et al.: at each budget a parabola in log N, and power laws through the minima.

    Raises `UsageError` for a faulty file, and if fewer than two budgets have a minimum within their sizes.
    """
    from assay.scaling import approaches
    from assay.scaling.points import check, read_points

    _check_draws(draws)
    read = isinstance(points, Path | str)
    given = read_points(Path(points), named=columns) if isinstance(points, Path | str) else points
    check(given, ("parameters", "tokens"), 2 * approaches.LEAST_SIZES, str(points) if read else "the list")
    return approaches.isoflop(given, draws, seed)


def envelope(
    curves: "Sequence[TrainingCurve] | Path | str", *, draws: int = DRAWS, seed: int = 0, columns: str | None = None
) -> "Envelope":
    """Fit approach 1 of Hoffmann et al.: the lower envelope of training curves, and power laws through its sizes.

    A CSV file has a row per point of a curve, with the columns parameters, tokens and loss. Where two runs have one
    size, a column run tells them apart. Raises `UsageError` for faulty curves, and if the envelope has one size within
    its ends.
    """
    from assay.scaling import approaches

    _check_draws(draws)
    given = approaches.read_curves(Path(curves), columns) if isinstance(curves, Path | str) else curves
    return approaches.envelope(given, draws, seed)


def _check_draws(draws: int) -> None:
    if draws < 2:
        raise UsageError("a bootstrap needs at least 2 draws")
