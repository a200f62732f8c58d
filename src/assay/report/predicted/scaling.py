"""A fitted scaling law as text, with its intervals."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.blocks import Block, Table
from assay.units import format_count, format_flops

if TYPE_CHECKING:
    from assay.scaling.extrapolation import Extrapolation
    from assay.scaling.fitted import FittedLaw


def fit_report(found: "FittedLaw") -> Iterator[Block]:
    """Yield the constants with their intervals, the optimum that follows, and the test on larger runs."""
    from assay.scaling.published import BESIROGLU

    law, cited, count = found.fit.law, BESIROGLU.printed, len(found.fit.points)
    dropped = f", without the {found.dropped} highest losses" if found.dropped else ""
    yield f"L(N, D) = E + A/N^α + B/D^β, fitted to {count} points{dropped}. Objective {found.fit.objective:.7f}."
    columns = ("constant", "fitted", "95 % interval", "Besiroglu 2024")
    rows = [
        (name, f"{value:.5g}", "{:.4g} to {:.4g}".format(*found.intervals[name]), f"{cited[name]:.5g}")
        for name, value in law.printed.items()
    ]
    yield Table.of(columns, rows, columns[1:])
    yield (
        f"Intervals are by the bootstrap, {len(found.draws)} draws. A and α, and B and β, go up and down together. "
        "Each alone says little, and predicted losses are more certain than constants."
    )
    if found.unidentified:
        yield (
            f"The points do not identify {', '.join(found.unidentified)}: the ends of these intervals differ by more "
            "than a factor of two."
        )
    parameters, tokens = law.optimum(float(found.fit.points.flops.max()))
    yield (
        f"The optimum of the largest compute, {format_flops(float(found.fit.points.flops.max()))}, is "
        f"{format_count(parameters)} parameters and {format_count(tokens)} tokens, {tokens / parameters:.3g} for each."
    )
    yield _beyond(found)
    if found.held_out is not None:
        tested = found.held_out
        yield (
            f"Points below {tested.below_flops:.3g} FLOPs were fitted. The loss of the other {tested.count} is "
            f"predicted with a mean absolute error of {tested.mean_error:.2%}; {tested.covered:.0%} are in their 95 % "
            f"interval. By the bootstrap alone, which takes the law as true, it is {tested.covered_if_law_is_true:.0%}."
        )


def _beyond(found: "FittedLaw") -> str:
    beyond = found.extrapolation
    if beyond is None:
        return (
            "The points are too few to hold some out. So the intervals of losses take the law as true, and are too "
            "narrow for more compute than that of the points."
        )
    return (
        f"Beyond {format_flops(beyond.fitted_flops)}, intervals of losses grow with the errors of {beyond.origins} "
        f"hold-outs within these points: to {_spread(beyond, 10):.1%} at 10 times the compute, and "
        f"{_spread(beyond, 100):.1%} at 100 times."
    )


def _spread(beyond: "Extrapolation", times: float) -> float:
    """Return the relative half width of an interval at so many times the fitted compute."""
    return float(np.expm1(beyond.half_widths(np.array([beyond.fitted_flops * times])))[0])


def fit_values(found: "FittedLaw") -> dict[str, Any]:
    """Return the same figures for programs."""
    tested = found.held_out
    return {
        "law": "E + A/N^alpha + B/D^beta",
        "points": len(found.fit.points),
        "dropped": found.dropped,
        "objective": found.fit.objective,
        "constants": found.fit.law.printed,
        "intervals": {name: list(ends) for name, ends in found.intervals.items()},
        "unidentified": list(found.unidentified),
        "draws": len(found.draws),
        "extrapolation": None if found.extrapolation is None else vars(found.extrapolation),
        "held_out": None if tested is None else vars(tested),
    }
