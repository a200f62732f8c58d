"""Losses of each row against those of the baseline: by second, by step, and their distance; a panel for each row.

The baseline is the grey line in every panel. Losses of equal training coincide with it, and in one common figure they
would hide each other. Seconds are those of the optimizer steps, the first one included. Start, evaluation and
checkpoints are no part of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import ceil, floor, isfinite, log10
from statistics import median
from typing import Any

from assay.analysis.comparison import Comparison
from assay.records.study import BASELINE, CellResult
from assay.report.page.compared.style import point
from assay.report.page.panels import MOST, Panel, is_wide, logarithmic
from assay.report.page.smoothing import Curve, smooth
from assay.report.page.theme import series
from assay.report.wording import unit_of_loss

_POINTS = 120
"""Most points of a curve in a panel."""
_BEGINNING = 20
"""Part of a curve whose losses may be above the panel: one twentieth."""

Places = Callable[[CellResult], Sequence[float]]


def by_seconds(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the losses by seconds of training; empty if the study compares no times."""
    return _panels(comparison, seconds, "seconds of steps") if comparison.record.timed else ()


def by_step(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the losses by optimizer step."""
    return _panels(comparison, _steps, "optimizer step")


def distances(comparison: Comparison) -> tuple[Panel, ...]:
    """Return |loss − baseline's loss| by step of each row that differs; rows that never do have no panel."""
    record = comparison.record
    reference = {one.cell.seed: one.curve.train_loss for one in reversed(record.references)}
    found = {
        (number, name): [_distance(one, reference.get(one.cell.seed, ())) for one in record.of(name)]
        for number, name in enumerate(record.treatments, start=1)
    }
    apart = {key: curves for key, curves in found.items() if any(values for _, values in curves)}
    values = [value for curves in apart.values() for _, some in curves for value in some]
    if not values:
        return ()
    # Only powers of ten have labels on the axis, so its limits are powers of ten.
    ends = 10.0 ** floor(log10(min(values))), 10.0 ** (floor(log10(max(values))) + 1)
    unit = "nats" if comparison.run.own_rows is None else "loss"
    return tuple(
        Panel(name, partial(_draw_distances, number, curves, ends, unit))
        for (number, name), curves in list(apart.items())[:MOST]
    )


def seconds(one: CellResult) -> list[float]:
    """Return the seconds of steps until the end of each step; of a record without them, by the median step."""
    told: Sequence[float] = one.curve.step_seconds
    if not told and one.result.step_seconds is not None:
        step = one.result.step_seconds.median
        told = [one.result.first_step_seconds or step, *[step] * (len(one.curve.train_loss) - 1)]
    return list(accumulate(told))


def _steps(one: CellResult) -> Sequence[float]:
    return range(1, len(one.curve.train_loss) + 1)


def _panels(comparison: Comparison, places: Places, label: str) -> tuple[Panel, ...]:
    record = comparison.record
    control = [one for one in record.of(BASELINE) if places(one) and one.curve.train_loss]
    rows = [(number, name, record.of(name)) for number, name in enumerate(record.treatments, start=1)]
    drawn = [(number, name, known) for number, name, cells in rows if (known := [one for one in cells if places(one)])]
    ends = _limits(control, [cells for _, _, cells in drawn])
    if ends is None:
        return ()
    across = _across([places(one) for cells in (control, *(cells for _, _, cells in drawn)) for one in cells])
    return tuple(
        Panel(name, partial(_draw, comparison, places, (number, cells), control, ends, (label, *across)))
        for number, name, cells in drawn[:MOST]
    )


def _draw(
    comparison: Comparison,
    places: Places,
    row: tuple[int, Sequence[CellResult]],
    control: Sequence[CellResult],
    ends: tuple[float, float],
    across: tuple[str, bool, tuple[float, float]],
    axis: Any,
) -> None:
    for number, cells in ((0, control), row):
        for one in cells:
            first = one.cell.seed == comparison.record.seeds[0]
            steps, losses = smooth(one.curve.train_loss, _POINTS)
            at = places(one)
            axis.plot(
                [at[int(step)] for step in steps],
                losses,
                color=series(number),
                alpha=(0.9 if first else 0.4) if number else 0.4,
                linewidth=1.4 if number else 2.6,
                zorder=2 + bool(number),
            )
            _evaluations(axis, one, number, at)
    label, wide, limits = across
    if wide:
        logarithmic(axis)
    axis.set(xlabel=label, ylabel=unit_of_loss(comparison.run), ylim=ends, xlim=limits)


def _across(places: Sequence[Sequence[float]]) -> tuple[bool, tuple[float, float]]:
    """Return whether the axis along which all rows train is logarithmic, and its limits."""
    lengths = [one[-1] for one in places]
    if is_wide(lengths):
        return True, (min(one[0] for one in places), 1.2 * max(lengths))
    return False, (0, 1.04 * max(lengths))


def _evaluations(axis: Any, one: CellResult, number: int, at: Sequence[float]) -> None:
    """Draw the evaluations as points, those before the first step left out."""
    seen = [(at[step - 1], value) for step, value in one.curve.evaluations if value is not None and 0 < step <= len(at)]
    axis.plot([place for place, _ in seen], [value for _, value in seen], **{**point(number), "markersize": 5})


def _limits(control: Sequence[CellResult], rows: Sequence[Sequence[CellResult]]) -> tuple[float, float] | None:
    """Return the limits of all panels: a diverging row leaves them, and so may the first losses of all."""
    curves = [smooth(one.curve.train_loss)[1] for one in control]
    others = [smooth(one.curve.train_loss)[1] for cells in rows for one in cells]
    known = [curve for curve in (*curves, *others) if curve]
    if not known:
        return None
    begun = [value for curve in curves for value in curve[len(curve) // _BEGINNING :]]
    highest = max([*begun, *(median(curve) for curve in others if curve)])
    first = max((curve[0] for curve in curves if curve), default=highest)
    seen = [value for cells in (control, *rows) for one in cells for _, value in one.curve.evaluations if value]
    lowest = min([*(min(curve) for curve in known), *filter(isfinite, seen)])
    room = 0.06 * (min(highest, 1.5 * first) - lowest) or 0.1
    return lowest - room, min(highest, 1.5 * first) + room


def _distance(one: CellResult, reference: Sequence[float | None]) -> Curve:
    """Return |loss − baseline's loss| by step, without steps of equal losses, which a log scale cannot show."""
    both = enumerate(zip(one.curve.train_loss, reference, strict=False))
    apart = [
        (float(step), abs(a - b))
        for step, (a, b) in both
        if a is not None and b is not None and a != b and isfinite(a - b)
    ]
    every = ceil(len(apart) / _POINTS) or 1
    return [step for step, _ in apart][::every], [value for _, value in apart][::every]


def _draw_distances(number: int, curves: Sequence[Curve], ends: tuple[float, float], unit: str, axis: Any) -> None:
    for steps, values in curves:
        axis.plot(steps, values, color=series(number), linewidth=1.1, alpha=1.0 if curves[0][0] is steps else 0.4)
    axis.set(yscale="log", ylim=ends, xlabel="optimizer step", ylabel=unit)
    axis.yaxis.set_major_formatter(_power_of_ten)
    axis.minorticks_off()


def _power_of_ten(value: float, _: int) -> str:
    """Format a power of ten as ``10⁻³``. Matplotlib's typesetting is off, because some texts are from outside."""
    power = round(log10(value))
    return f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
