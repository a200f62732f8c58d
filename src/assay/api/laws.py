"""Laws of loss: list them, fit one to points, and predict losses; optima at equal compute need no law."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.scaling_results import LawFit, LossAnswer
    from assay.scaling.approaches import Envelope, IsoFlop, TrainingCurve
    from assay.scaling.law_intervals import Likelihood
    from assay.scaling.laws import Form
    from assay.scaling.points import Floats, Points

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
    columns: str | None = None,
    home: Home | Path | str | None = None,
) -> "LawFit":
    """Fit a law to points, or to those of a CSV file or a study, with intervals, and test it on larger runs.

    `drop` leaves out the points with the highest losses, before anything else. All that are left are fitted. For the
    test, the law is also fitted to four fifths of them, those with the least compute, and predicts the others.
    With `below_flops` only points with less compute are fitted, and the others test that law. For a law of N or D alone
    it is the least N or D that is held out. `profile` adds profile intervals under a likelihood. Runs that a study
    holds out are the test in any case, and those that try other learning rates are left out. `columns` names the
    columns of a file whose headings are not known: ``n=params_total,d=tokens_trained,loss=val_bpb:bits``.

    Raises `UsageError` for a faulty file, an unknown law, or points that cannot determine it.
    """
    from assay.api.scaling_results import LawFit
    from assay.scaling.fitted import fit_law
    from assay.scaling.law_intervals import extents
    from assay.scaling.laws import form_named
    from assay.scaling.points import check

    form = form_named(law)
    _check_options(drop, draws, profile)
    given, name, held_out, by_byte = _given(points, form, columns, home)
    below_flops = held_out if below_flops is None and form.extent == "flops" else below_flops
    check(given, form.needs, form.least_points, name)
    if held_out is None and below_flops is not None:
        _check_cut(below_flops, extents(given, form).max(), name, hold_out=hold_out)
    many = {"drop": drop, "draws": draws, "seed": seed}
    found = fit_law(given, form, below=below_flops, hold_out=hold_out, profile=profile, **many)
    return LawFit.from_value(found, by_byte=by_byte)


def _check_cut(below: float, most: float, name: str, *, hold_out: bool) -> None:
    if not hold_out:
        raise UsageError("a cut tests the law on the points above it; leave it out, or let points be held out")
    if not 0 < below < float("inf"):
        raise UsageError(f"a cut of {below:g} is not possible; give a number above 0, such as 1e20")
    if most < below:
        raise UsageError(f"no point of {name} is above {below:g}, so nothing tests the law; give a lower cut")


def _check_options(drop: int, draws: int, profile: "Likelihood | None") -> None:
    from assay.scaling.law_intervals import DELTAS, LEAST_DRAWS

    if drop < 0:
        raise UsageError(f"{drop} dropped points are not possible; give 0 or more")
    if draws < LEAST_DRAWS:
        raise UsageError(f"{draws} draws have no interval of 95 %; give {LEAST_DRAWS} or more")
    if profile is not None and profile not in DELTAS:
        raise UsageError(f"there is no likelihood {profile!r}; there are {' and '.join(DELTAS)}")


def _given(
    points: "Points | Path | str", form: "Form", columns: str | None, home: Home | Path | str | None
) -> "tuple[Points, str, float | None, str]":
    """Return points, the name of their source, the FLOPs from which a study holds its runs out, and `by_byte`."""
    from assay.scaling.points import Points, heading_by_byte, points_table, read_points
    from assay.scaling.scaling_study import array_of

    if isinstance(points, Path) or (isinstance(points, str) and (Path(points).suffix or Path(points).exists())):
        table = points_table(Path(points))
        return read_points(table, form.needs, columns), str(points), None, heading_by_byte(table, columns)
    if columns is not None:
        raise UsageError("columns name those of a file; leave them out")
    if not isinstance(points, str):
        if not isinstance(points, Points):
            raise UsageError("points are a file, a study, or assay.scaling.points.Points with arrays of numbers")
        return points, "the list", None, ""
    from assay.api import scaling_study

    found = scaling_study.points(points, home).of_law
    # Somewhat less, because extents are compared after a logarithm.
    held_out = (0.99 * one.flops for one in found if one.role == "held out")
    return array_of(found), f"the study {points}", min(held_out, default=None), ""


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
    the law needs is missing, and beyond 10,000 times the fitted points unless `far`. FLOPs are as the points count
    them.
    """
    from assay.api.scaling_results import LossAnswer
    from assay.scaling.fitted import FittedLaw
    from assay.scaling.points import PLAIN
    from assay.scaling.predict import asked_points, published_law

    if isinstance(law, FittedLaw) and source is not None:
        raise UsageError("a source names published constants, and these points are fitted; give only one of them")
    if isinstance(law, str) and Path(law).exists():
        raise UsageError(f"{law} is a file; fit its points first: predict(fit({law!r}), …)")
    found = law if isinstance(law, FittedLaw) else published_law(law, source)
    columns = {
        "parameters": parameters,
        "tokens": tokens,
        "counted_flops": flops,
        "min_flops": min_flops,
        "min_steps": min_steps,
        "unique_tokens": unique_tokens,
    }
    counted = found.accounting if isinstance(found, FittedLaw) else PLAIN
    answer = found.predict(asked_points(found.law, columns, counted), far)
    return LossAnswer.from_value(answer)


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
