"""Figures of a comparison, each as panels: changes, memory, predictions, step times, and courses of losses.

Panels are drawn in the marker colours of the theme. The baseline is the first series and keeps its colour in all
figures. Categories of memory have the colours of the series in their own order.

An instant is the highest of its part of the step: forward and backward by block, and the update. The categories are
those of the prediction, because a measured peak has no parts. All panels have the same height of scale, so that areas
can be compared by eye.

A ridge is a histogram over all processes of a row, drawn on the line of its name, so that no row hides another. The
first step, those of warm-up and the first of each timed block are left out, as in all times. The few slowest steps of
all rows may be beyond the axis; the triangle at the right has their number.

The baseline is the grey line in every panel. Losses of equal training coincide with it, and in one common figure they
would hide each other. Seconds are those of the optimizer steps, the first one included. Start, evaluation and
checkpoints are no part of them.
"""

# More than 400 lines: all figures of a comparison, which share the points and names of rows.

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby
from math import ceil, floor, isfinite, log10
from statistics import median
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import TENSORS_PEAK_BYTES
from assay.analysis.row import Row, usable
from assay.records.prediction import MemoryOverStep
from assay.records.study import BASELINE, CellResult
from assay.report.comparison.wording import columns, fine_percent, prediction_error, unit_of_loss
from assay.report.kit.drawing import (
    GRID,
    INK,
    MOST,
    PAPER,
    SOFT,
    Curve,
    Panel,
    byte_unit,
    is_wide,
    logarithmic,
    marker,
    row_numbers,
    series,
    smooth,
    wrap_row_name,
)
from assay.units import format_bytes, format_percent

MEBI = 2**20


def point(number: int) -> dict[str, Any]:
    """Return the style of the point of a row: 0 is the baseline."""
    return {
        "color": series(number),
        "marker": marker(number),
        "markersize": 7,
        "markeredgecolor": PAPER,
        "linestyle": "none",
    }


def name_rows(axis: Any, names: Sequence[str]) -> None:
    """Write the names of rows at the left, from the top down; the place of a row is its index."""
    axis.set_yticks(range(len(names)), names, color=INK)
    axis.set_ylim(len(names) - 0.4, -0.7)
    axis.grid(axis="y", visible=False)


def break_names(rows: Sequence[str]) -> tuple[str, ...]:
    """Return the names of rows as an axis shows them."""
    return tuple(map(wrap_row_name, rows))


def height(names: Sequence[str]) -> float:
    """Return the height in inches of a panel with these names."""
    return 0.75 + 0.25 * len(names) + 0.13 * sum(1 + name.count("\n") for name in names)


def changes(comparison: Comparison) -> tuple[Panel, ...]:
    """Return a panel for each metric in bytes or seconds that has a change."""
    rows = [row for row in comparison.rows if row.effects]
    names = break_names([row.label for row in rows])
    shown = [metric for metric in columns(comparison.run) if metric.unit in ("bytes", "seconds")]
    return tuple(
        Panel(metric.title, partial(_draw_changes, comparison, rows, metric), height(names), names)
        for metric in shown
        if any(metric.name in row.effects for row in rows)
    )


def _draw_changes(comparison: Comparison, rows: Sequence[Row], metric: Metric, axis: Any) -> None:
    """Draw intervals, predictions, and a band of changes too small to tell."""
    if least := comparison.resolution.get(metric.name):
        axis.axvspan(-100 * least.told / (1 + least.told), 100 * least.told, color=GRID, alpha=0.8, linewidth=0)
    axis.axvline(0, color=SOFT, linewidth=1)
    numbers = row_numbers(comparison.record)
    for place, row in enumerate(rows):
        _change(axis, place, row, metric.name, numbers[row.treatment])
    axis.margins(x=0.2)
    axis.set_xlabel("change, %")
    name_rows(axis, break_names([row.label for row in rows]))


def _change(axis: Any, place: int, row: Row, metric: str, number: int) -> None:
    predicted = row.predicted_change.get(metric)
    if predicted is not None:
        axis.plot(100 * predicted, place, marker="d", markersize=9, linestyle="none",
                  markerfacecolor="none", markeredgecolor=SOFT, zorder=4)  # fmt: skip
    effect = row.effects.get(metric)
    if effect is None:
        return
    low, high = effect.interval or (effect.change, effect.change)
    axis.plot([100 * low, 100 * high], [place, place], color=series(number), linewidth=2.4, zorder=2)
    axis.plot(100 * effect.change, place, **point(number), zorder=3)
    axis.annotate(format_percent(effect.change), (100 * effect.change, place), (0, 8), textcoords="offset points",
                  ha="center", fontsize=8, color=INK)  # fmt: skip


_ROOM = 1.22
"""Height of the axis over the highest peak, for a line of text."""
_LONGEST = 58
"""Longest text on an instant, in characters."""

Known = tuple[Row, MemoryOverStep]


def memory(comparison: Comparison) -> tuple[Panel, ...]:
    """Return a panel for each row with a predicted timeline; records older than it have none."""
    rows = _known(comparison)
    if not rows:
        return ()
    top = max(max(*one.alive, _measured_memory(row) or 0) for row, one in rows)
    names = categories(comparison)
    return tuple(Panel(row.label, partial(_draw_memory, row, one, names, top)) for row, one in rows[:MOST])


def categories(comparison: Comparison) -> tuple[str, ...]:
    """Return the categories of all panels, from the lowest layer on; that at index n has the colour n + 1."""
    found = [list(one.layers) for _, one in _known(comparison)]
    longest = sorted(found, key=len, reverse=True)
    return tuple(dict.fromkeys(name for names in longest for name in names))


def _known(comparison: Comparison) -> list[Known]:
    every = (comparison.baseline, *comparison.rows)
    return [(row, row.predicted.memory) for row in every if row.predicted and row.predicted.memory]


def _measured_memory(row: Row) -> int | None:
    value = row.metrics.get(TENSORS_PEAK_BYTES.name)
    return value if isinstance(value, int) else None


def _draw_memory(row: Row, found: MemoryOverStep, names: Sequence[str], top: int, axis: Any) -> None:
    unit, label = byte_unit(top)
    places = range(len(found.instants))
    shown = [name for name in names if name in found.layers]
    # Each instant has a bin of its own, whose right edge repeats its height.
    heights = [[count / unit for count in (*found.layers[name], found.layers[name][-1])] for name in shown]
    edges = [place - 0.5 for place in range(len(found.instants) + 1)]
    colours = [series(1 + names.index(name)) for name in shown]
    axis.stackplot(edges, *heights, labels=shown, colors=colours, step="post", alpha=0.75, linewidth=0)
    alive = found.alive
    peak = max(places, key=alive.__getitem__)
    axis.plot(peak, alive[peak] / unit, color=INK, marker="v", markersize=5, linestyle="none", zorder=4)
    measured = _measured_memory(row)
    if measured is not None:
        axis.axhline(measured / unit, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    _write(axis, f"{format_bytes(alive[peak])} in {found.instants[peak]}")
    _phases(axis, found.instants)
    axis.set(ylabel=label, ylim=(0, _ROOM * top / unit), xlim=(-0.5, len(found.instants) - 0.5))
    axis.grid(axis="x", visible=False)


def _write(axis: Any, text: str) -> None:
    """Write the peak and its instant above the areas."""
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    axis.text(0.02, 0.97, short, transform=axis.transAxes, ha="left", va="top", fontsize=8, color=SOFT)


def _phases(axis: Any, instants: Sequence[str]) -> None:
    """Mark where the phases begin, and write their names below; recomputation is a part of backward."""
    phases = [instant.partition(":")[0].replace("recompute", "backward") for instant in instants]
    ticks, start = [], 0
    for name, group in groupby(phases):
        end = start + len(list(group))
        ticks.append(((start + end - 1) / 2, name))
        if start:
            axis.axvline(start - 0.5, color=GRID, linewidth=1)
        start = end
    axis.set_xticks([place for place, _ in ticks], [name for _, name in ticks])
    axis.tick_params(axis="x", length=0)


_LEAST_REACH = 0.5
"""Smallest half width of the axis of errors, in percent."""

Numbered = Sequence[tuple[int, Row]]


def _numbered(comparison: Comparison) -> Numbered:
    numbers = row_numbers(comparison.record)
    return [(numbers[row.treatment], row) for row in (comparison.baseline, *comparison.rows)]


def predictions(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the panels of both figures; empty if no row has a prediction and a measurement."""
    rows = [(number, row) for number, row in _numbered(comparison) if prediction_error(row) is not None]
    if not rows:
        return ()
    names = break_names([row.label for _, row in rows])
    return (
        Panel("peak of tensors, MiB", partial(_peaks, rows), 3.2),
        Panel("error of the prediction", partial(_errors, rows), height(names), names),
    )


def _peaks(rows: Numbered, axis: Any) -> None:
    points = [(_measured_peak(row), _predicted(row)) for _, row in rows]
    ends = [0.9 * min(map(min, points)), 1.1 * max(map(max, points))]
    axis.plot(ends, ends, color=SOFT, linewidth=1, zorder=1)
    axis.text(0.98, 0.03, "on the line: as predicted", transform=axis.transAxes, ha="right", color=SOFT, fontsize=8)
    for (number, _), at in zip(rows, points, strict=True):
        axis.plot(*at, **point(number))
    axis.set(xlabel="measured, MiB", ylabel="predicted, MiB")


def _errors(rows: Numbered, axis: Any) -> None:
    errors = [100 * (prediction_error(row) or 0.0) for _, row in rows]
    for place, ((number, _), error) in enumerate(zip(rows, errors, strict=True)):
        axis.plot([0, error], [place, place], color=series(number), linewidth=2)
        axis.plot(error, place, **point(number))
        axis.annotate(fine_percent(error / 100), (error, place), (0, 8), textcoords="offset points",
                      ha="center", fontsize=8, color=INK)  # fmt: skip
    axis.axvline(0, color=SOFT, linewidth=1)
    axis.set_xlabel("predicted / measured − 1, %")
    name_rows(axis, break_names([row.label for _, row in rows]))
    reach = max(_LEAST_REACH, 1.3 * max(map(abs, errors)))
    axis.set_xlim(-reach, reach)


def _measured_peak(row: Row) -> float:
    value: Any = row.metrics[TENSORS_PEAK_BYTES.name]
    return float(value) / MEBI


def _predicted(row: Row) -> float:
    value: Any = row.predicted.tensors_peak_bytes if row.predicted else None
    return float(value) / MEBI


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BINS = 60
_LAST = 0.98
"""Quantile of the slowest row at which the axis ends."""
_HIGH = 0.8
"""Height of a ridge, where the distance of two rows is 1."""


def step_times(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the panel of all rows whose record has seconds of steps; empty if times are not compared."""
    record = comparison.record
    if not record.timed:
        return ()
    found = [(number, row.label, steady(usable(record.of(row.treatment)))) for number, row in _numbered(comparison)]
    known = [one for one in found if len(one[2]) > 1]
    if not known:
        return ()
    names = break_names([name for _, name, _ in known])
    size = 0.9 + sum(0.42 + 0.13 * name.count("\n") for name in names)
    return (Panel("seconds of steady steps", lambda axis: _draw_steps(axis, known), size, names),)


def steady(cells: Sequence[CellResult]) -> "Floats":
    """Return the seconds of the steady steps of some processes; empty for records without them."""
    import numpy as np

    kept = []
    for one in cells:
        left_out = set(one.curve.unsteady)
        kept += [value for step, value in enumerate(one.curve.step_seconds) if step not in left_out]
    return np.array(kept, dtype=np.float64)


def _draw_steps(axis: Any, rows: Sequence[tuple[int, str, "Floats"]]) -> None:
    import numpy as np

    unit, label = (1e3, "ms") if max(np.median(values) for *_, values in rows) < 1 else (1.0, "s")
    first = unit * min(values.min() for *_, values in rows)
    last = unit * max(float(np.quantile(values, _LAST)) for *_, values in rows)
    last = last if last > first else 1.1 * first
    edges = np.linspace(first, last, _BINS + 1)
    for place, (number, _, values) in enumerate(rows):
        scaled = unit * values
        counts, _ = np.histogram(scaled, edges)
        heights = _HIGH * counts / max(1, counts.max())
        axis.stairs(place - heights, edges, baseline=place, fill=True, color=series(number), alpha=0.55, linewidth=0)
        middle = float(np.median(scaled))
        axis.plot([middle, middle], [place, place - _HIGH], color=INK, linewidth=1.2)
        beyond = int((scaled > last).sum())
        if beyond:
            axis.annotate(f"{beyond} ▸", (last, place), (-1, 3), textcoords="offset points", ha="right", fontsize=7.5,
                          color=SOFT)  # fmt: skip
    axis.set(xlabel=label, xlim=(first - 0.02 * (last - first), last))
    name_rows(axis, break_names([name for _, name, _ in rows]))
    axis.set_ylim(len(rows) - 0.7, -1.0)


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
    numbers = row_numbers(record)
    found = {
        (numbers[name], name): [_distance(one, reference.get(one.cell.seed, ())) for one in record.of(name)]
        for name in record.treatments
    }
    apart = {key: curves for key, curves in found.items() if any(values for _, values in curves)}
    values = [value for curves in apart.values() for _, some in curves for value in some]
    if not values:
        return ()
    # Only powers of ten have labels on the axis, so its limits are powers of ten.
    ends = 10.0 ** floor(log10(min(values))), 10.0 ** (floor(log10(max(values))) + 1)
    unit = "nats" if comparison.run.own_rows is None else "loss"
    return tuple(
        Panel(comparison.names[name], partial(_draw_distances, number, curves, ends, unit))
        for (number, name), curves in list(apart.items())[:MOST]
    )


def seconds(one: CellResult) -> list[float]:
    """Return the seconds of steps until the end of each step; of a record without them, by the median step."""
    told: Sequence[float] = one.curve.step_seconds
    if not told and one.result.speed.step_seconds is not None:
        step = one.result.speed.step_seconds.median
        told = [one.result.speed.first_step_seconds or step, *[step] * (len(one.curve.train_loss) - 1)]
    return list(accumulate(told))


def _steps(one: CellResult) -> Sequence[float]:
    return range(1, len(one.curve.train_loss) + 1)


def _panels(comparison: Comparison, places: Places, label: str) -> tuple[Panel, ...]:
    record = comparison.record
    control = [one for one in record.of(BASELINE) if places(one) and one.curve.train_loss]
    numbers = row_numbers(record)
    drawn = [
        (numbers[name], name, known)
        for name in record.treatments
        if (known := [one for one in record.of(name) if places(one)])
    ]
    ends = _limits(control, [cells for _, _, cells in drawn])
    if ends is None:
        return ()
    names = comparison.names
    across = _across([places(one) for cells in (control, *(cells for _, _, cells in drawn)) for one in cells])
    return tuple(
        Panel(names[row], partial(_draw, comparison, places, (number, cells), control, ends, (label, *across)))
        for number, row, cells in drawn[:MOST]
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


FIGURES: dict[str, Callable[[Comparison], tuple[Panel, ...]]] = {
    "changes": changes,
    "memory": memory,
    "seconds": by_seconds,
    "step_times": step_times,
    "losses": by_step,
    "distances": distances,
    "predictions": predictions,
}
"""Figures by name, in the order of the page."""
TITLES = {
    "changes": "Memory and time against the baseline",
    "memory": "Memory over a step",
    "seconds": "Loss against seconds",
    "step_times": "Distribution of step times",
    "losses": "Loss by step",
    "distances": "Distance from the baseline’s loss",
    "predictions": "Predicted against measured",
}
"""Headings of the figures on a page."""
CAPTIONS = {
    "changes": (
        "Points are measured changes, bars their intervals, hollow diamonds the predictions made before the run. The "
        "grey band contains the changes that this comparison cannot distinguish from none. Points left of the line are "
        "below the baseline."
    ),
    "memory": (
        "Predicted bytes that are alive at the highest instant of each part of a step, by category, in the order of "
        "the step. The triangle marks the predicted peak, the dashed line the measured one. Recomputation is a part of "
        "backward."
    ),
    "seconds": (
        "Training loss by seconds of optimizer steps, the first one included; start, evaluation and checkpoints are "
        "not. One line per run, the first seed in full colour, smoothed by a running mean over a twentieth of the "
        "steps (at least three). Points are evaluations on held-out text. The broad grey line is the baseline. Losses "
        "of the first steps may be above the panels."
    ),
    "step_times": (
        "Seconds of the steady steps of all runs of a row, as a histogram on the line of its name; the dark line "
        "is the median. A number at the right counts slower steps beyond the axis. Intervals are not read from this "
        "figure: they are over runs."
    ),
    "losses": (
        "The same losses by optimizer step. Where a row trains as the baseline does, its line is on the grey one."
    ),
    "distances": (
        "Distance of each step’s training loss from the baseline’s at the same seed, unsmoothed. A logarithmic axis "
        "cannot show steps that agree to the last bit, so a row that never differs has no panel."
    ),
    "predictions": (
        "The most bytes requested from torch’s allocator within one optimizer step: computed from the configuration "
        "before the run, and counted in the memory pass at its end. The instant is the operation at which this maximum "
        "occurs."
    ),
}
"""Sentences below the figures."""
