"""A fitted scaling law as text, with its intervals."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.blocks import Block, Table
from assay.units import finite, format_count, format_flops

if TYPE_CHECKING:
    from assay.scaling.extrapolation import Extrapolation
    from assay.scaling.fitted import FittedLaw, HeldOut

UNITS = {"flops": "FLOPs", "parameters": "parameters", "tokens": "tokens"}
"""Units of the quantity in which a law extrapolates."""


def fit_report(found: "FittedLaw") -> Iterator[Block]:
    """Yield the constants with their intervals, what the points do not say, the optimum, and the test."""
    form, count = found.law.form, len(found.fit.points)
    dropped = f", without the {found.dropped} highest losses" if found.dropped else ""
    yield f"{form.name}: {form.formula}, fitted to {count} points{dropped}. Objective {found.fit.objective:.7f}."
    yield f"Counts: {form.counts}. Source: {form.source}."
    yield _constants(found)
    yield (
        f"Intervals are by the bootstrap, {len(found.draws)} draws. Predicted losses are more certain than constants, "
        "which stand in for each other."
    )
    if found.together:
        pairs = "; ".join(f"{one} and {other}" for one, other in found.together)
        yield f"These go up and down together, so each alone says little: {pairs}."
    if found.unidentified:
        yield (
            f"The points do not identify {', '.join(found.unidentified)}: the ends of an interval differ by more "
            "than a factor of two, or in sign, or one is open."
        )
    if found.profile is not None:
        yield _likelihood(found)
    yield from _optimum(found)
    yield _beyond(found)
    if found.held_out is not None:
        yield _tested(found.held_out, found)


def _constants(found: "FittedLaw") -> Table:
    """Return a row for each constant, with the columns that the fit has."""
    law, intervals = found.law, found.intervals
    columns = {"fitted": [f"{value:.5g}" for value in law.printed.values()]}
    columns["95 % interval"] = ["{:.4g} to {:.4g}".format(*intervals[name]) for name in law.printed]
    if found.profile is not None:
        columns[f"{found.profile.likelihood} profile"] = [_ends(found.profile.intervals[name]) for name in law.printed]
    if found.undropped is not None:
        columns[f"all {len(found.undropped.points)} points"] = [
            f"{value:.5g}" for value in found.undropped.law.printed.values()
        ]
    source = next(iter(law.form.published), None)
    if source is not None:
        columns[source] = [f"{value:.5g}" for value in law.form.published[source]]
    rows = [(name, *(texts[place] for texts in columns.values())) for place, name in enumerate(law.printed)]
    return Table.of(("constant", *columns), rows, columns)


def _ends(ends: tuple[float | None, float | None]) -> str:
    low, high = ("open" if end is None else f"{end:.4g}" for end in ends)
    return f"{low} to {high}"


def _likelihood(found: "FittedLaw") -> str:
    """Return what the profile assumes, and which density the residuals follow better."""
    assert found.profile is not None
    likely = found.profile.log_likelihoods
    better = max(likely, key=lambda name: likely[name])
    figures = ", ".join(f"{name} {value:.1f}" for name, value in likely.items())
    return (
        f"The profile is of the likelihood {found.profile.likelihood} on log losses. Log-likelihoods are {figures}, so "
        f"residuals follow {better} better."
    )


def _optimum(found: "FittedLaw") -> Iterator[str]:
    flops = float(found.fit.points.flops.max())
    best = found.law.form.optimum(found.law.values, flops)
    if best is not None:
        parameters, tokens = best
        yield (
            f"The optimum of the largest compute, {format_flops(flops)}, is {format_count(parameters)} parameters and "
            f"{format_count(tokens)} tokens, {tokens / parameters:.3g} for each."
        )


def _tested(tested: "HeldOut", found: "FittedLaw") -> str:
    unit = UNITS[found.law.form.extent]
    fitted = "Points" if tested.fitted == len(found.fit.points) else f"For a test, the {tested.fitted} points"
    return (
        f"{fitted} below {tested.below:.3g} {unit} were fitted. The loss of the other {tested.count} is "
        f"predicted with a mean absolute error of {tested.mean_error:.2%}; {tested.covered:.0%} are in their 95 % "
        f"interval. By the bootstrap alone, which takes the law as true, it is {tested.covered_if_law_is_true:.0%}."
    )


def _beyond(found: "FittedLaw") -> str:
    beyond, extent = found.extrapolation, found.law.form.extent
    if beyond is None:
        return (
            "The points are too few to hold some out. So the intervals of losses take the law as true, and are too "
            "narrow beyond the points."
        )
    return (
        f"Beyond {beyond.fitted_flops:.3g} {UNITS[extent]}, intervals of losses grow with the errors of "
        f"{beyond.origins} hold-outs within these points: to {_spread(beyond, 10):.1%} at 10 times as much, and "
        f"{_spread(beyond, 100):.1%} at 100 times."
    )


def _spread(beyond: "Extrapolation", times: float) -> float:
    """Return the relative half width of an interval at so many times the fitted compute."""
    return float(np.expm1(beyond.half_widths(np.array([beyond.fitted_flops * times])))[0])


def fit_values(found: "FittedLaw") -> dict[str, Any]:
    """Return the same figures for programs; None stands for an open end and a number that is too large."""
    return {name: finite(value) for name, value in _values(found).items()}


def _values(found: "FittedLaw") -> dict[str, Any]:
    form, tested, profile = found.law.form, found.held_out, found.profile
    return {
        "law": form.name,
        "formula": form.formula,
        "counts": form.counts,
        "source": form.source,
        "points": len(found.fit.points),
        "dropped": found.dropped,
        "objective": found.fit.objective,
        "constants": found.law.printed,
        "intervals": {name: list(ends) for name, ends in found.intervals.items()},
        "profile": None
        if profile is None
        else {
            "likelihood": profile.likelihood,
            "intervals": {name: list(ends) for name, ends in profile.intervals.items()},
            "log_likelihoods": profile.log_likelihoods,
        },
        "unidentified": list(found.unidentified),
        "together": [list(pair) for pair in found.together],
        "all_points": None
        if found.undropped is None
        else {
            "points": len(found.undropped.points),
            "objective": found.undropped.objective,
            "constants": found.undropped.law.printed,
        },
        "draws": len(found.draws),
        "extrapolation": None if found.extrapolation is None else vars(found.extrapolation),
        "held_out": None if tested is None else vars(tested),
    }
