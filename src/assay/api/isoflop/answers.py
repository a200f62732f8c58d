"""Points of a study, and the answer of a study of scaling."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home

if TYPE_CHECKING:
    from assay.api.isoflop.results import ScalingResult, StudyPoints


def points(name: str, home: Home | Path | str | None = None) -> "StudyPoints":
    """Return the points of a study: size, tokens, FLOPs and loss of each run that is done.

    `name` is a study's id, the start of one, its name, or last. Raises `UsageError` if it has none.
    """
    from assay.api.isoflop.results import StudyPoints
    from assay.api.study import show
    from assay.scaling.scaling_study import points_of

    return StudyPoints(points_of(show(name, home).record))


def answer(name: str, *, draws: int = 200, seed: int = 0, home: Home | Path | str | None = None) -> "ScalingResult":
    """Fit the law of a study, and predict the run that is held out. Raises `UsageError` if too few runs have ended."""
    from assay.api.isoflop.results import ScalingResult
    from assay.api.study import show
    from assay.scaling.scaling_study import answer as answered

    found = answered(show(name, home).record, draws, seed)
    return ScalingResult(**vars(found))
