"""Laws of loss: list them, fit one to points with a test on larger runs, and predict losses."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.laws.results import LawFit, LossAnswer
    from assay.scaling.laws import Form
    from assay.scaling.points import Floats, Points
    from assay.scaling.profile import Likelihood

DRAWS = 200
"""Draws of a bootstrap by default."""


def laws() -> "dict[str, Form]":
    """Return the laws that can be fitted, by name, with their formulas, counts, sources and published constants."""
    from assay.scaling.laws import forms

    return forms()


def fit(
    points: "Points | Path | str",
    *,
    law: str = "hoffmann",
    drop: int = 0,
    below_flops: float | None = None,
    hold_out: bool = True,
    profile: "Likelihood | None" = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> "LawFit":
    """Fit a law to points or to those of a CSV file, with intervals by the bootstrap, and test it on larger runs.

    `drop` leaves out the points with the highest losses, before anything else. All that are left are fitted. For the
    test, the law is also fitted to four fifths of them, those with the least compute, and predicts the others.
    With `below_flops` only points with less compute are fitted, and the others test that law. For a law of N or D alone
    it is the least N or D that is held out. `profile` adds profile intervals under a likelihood.

    Raises `UsageError` for a faulty file, an unknown law, or points that cannot determine it.
    """
    from assay.api.laws.results import LawFit
    from assay.scaling.laws import form_named
    from assay.scaling.points import check, read_points
    from assay.scaling.profile import DELTAS
    from assay.scaling.tested import fitted

    form = form_named(law)
    if drop < 0 or draws < 2:
        raise UsageError("the number of dropped points cannot be negative, and a bootstrap needs at least 2 draws")
    if profile is not None and profile not in DELTAS:
        raise UsageError(f"there is no likelihood {profile!r}; there are {' and '.join(DELTAS)}")
    given, name = (
        (read_points(Path(points), form.needs), str(points)) if isinstance(points, Path | str) else (points, "the list")
    )
    check(given, form.needs, form.least_points, name)
    found = fitted(
        given, form, drop=drop, below=below_flops, hold_out=hold_out, profile=profile, draws=draws, seed=seed
    )
    return LawFit(**vars(found))


def predict(
    law: "LawFit | str" = "hoffmann",
    *,
    source: str | None = None,
    parameters: "Floats | float | None" = None,
    tokens: "Floats | float | None" = None,
    flops: "Floats | float | None" = None,
    min_flops: "Floats | float | None" = None,
    min_steps: "Floats | float | None" = None,
    unique_tokens: "Floats | float | None" = None,
    far: bool = False,
) -> "LossAnswer":
    """Return the loss that a fitted law predicts, with a 95 % interval, or that of published constants, without one.

    A law of N and D may be asked by `flops` alone: then N and D are its optimum. Raises `UsageError` if a quantity that
    the law needs is missing, and beyond 10,000 times the fitted points unless `far`.
    """
    from assay.api.laws.results import LossAnswer
    from assay.scaling.asked import asked_points, published
    from assay.scaling.fitted import FittedLaw

    found = law if isinstance(law, FittedLaw) else published(law, source)
    columns = {
        "parameters": parameters,
        "tokens": tokens,
        "counted_flops": flops,
        "min_flops": min_flops,
        "min_steps": min_steps,
        "unique_tokens": unique_tokens,
    }
    answer = found.predict(asked_points(found.law, columns), far)
    return LossAnswer(**vars(answer))
