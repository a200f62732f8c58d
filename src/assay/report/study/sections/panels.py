"""Figures of a study's sections: rows by time and memory, learning rates, estimates, parts of stacks, heat maps.

Each step of the staircase begins where the one above it ends, as if the changes added up. The bar below is the measured
change of the whole. There is a panel for each stack and each metric in bytes or seconds.

A field is filled with a colour of the theme, the fainter the smaller its number. So the page's own background shows
through, and the same figure is readable on light paper and on a dark screen.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.analysis.choose.criteria import Criterion
from assay.analysis.choose.ranking import CriteriaFront, Standing, frontier
from assay.analysis.choose.series import BATCH_SIZE, RateSeries, learning_rates
from assay.analysis.factors.additivity import Deviation, Grid, deviations
from assay.analysis.factors.changes import ChangeEstimate
from assay.analysis.factors.layout import Change
from assay.analysis.metrics import metrics
from assay.report.comparison.wording import points, title
from assay.report.kit.blocks import UNKNOWN
from assay.report.kit.drawing import (
    CHARACTER,
    INK,
    MOST,
    PAPER,
    SMALL,
    SOFT,
    WIDTH,
    Panel,
    byte_unit,
    is_wide,
    logarithmic,
    marker,
    series,
    wrap_row_name,
)
from assay.report.kit.labels import Label, place_labels
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

_NAMED = 14
"""Most points that are named in the figure; beyond, only those of the front are."""


def front_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return memory against the time of all steps; rows on the front are filled, others hollow."""
    found = study.of(frontier)
    if not {"memory", "time"} <= {one.name for one in found.criteria}:
        return ()
    points = [(study.number(one.row.treatment), one) for one in found.rows if one.figures]
    return (Panel("memory against time", partial(_draw_front, found, points), 4.4, width=SMALL),)


def _draw_front(found: CriteriaFront, points: Sequence[tuple[int, Standing]], axis: Any) -> None:
    by_name = {one.name: one for one in found.criteria}
    crowded = len(points) > _NAMED
    scale, unit = byte_unit(min(one.figures["memory"] for _, one in points))
    labels = []
    for number, one in sorted(points, key=lambda point: not point[1].on_front):  # the front's names come first
        at = (one.figures["time"], one.figures["memory"] / scale)
        fill = {} if one.on_front else {"markerfacecolor": "none", "markeredgewidth": 1.6}
        axis.plot(*at, color=series(number), marker=marker(number), markersize=9, linestyle="none", **fill)
        if one.on_front or not crowded:
            labels.append(Label(_label(one, by_name.get("loss")), at))
    axis.margins(0.18)
    if is_wide([one.figures["time"] for _, one in points]):
        logarithmic(axis)
    axis.set(xlabel="time of all steps, seconds", ylabel=f"{by_name['memory'].metric.title}, {unit}")
    place_labels(axis, labels)


def _label(one: Standing, loss: Criterion | None) -> str:
    name = wrap_row_name(one.row.label)
    return name if loss is None else f"{name}\nloss {one.figures['loss']:.3f}"


def rate_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return the loss by learning rate, a panel for each series with equal axes; rates that diverged are marked."""
    drawn = [one for one in study.of(learning_rates) if one.best is not None]
    rates = sorted({rate.rate for one in drawn for rate in one.rates})
    losses = [rate.loss for one in drawn for rate in one.rates if rate.loss is not None]
    if not losses:
        return ()
    room = 0.08 * (max(losses) - min(losses)) or 0.1
    ends = min(losses) - room, max(losses) + 2 * room
    return tuple(
        Panel(_name(one), partial(_draw_rates, one, number, rates, ends), 2.8) for number, one in enumerate(drawn, 1)
    )


def _draw_rates(one: RateSeries, number: int, rates: list[float], ends: tuple[float, float], axis: Any) -> None:
    known = [(rate.rate, rate.loss) for rate in one.rates if rate.loss is not None]
    style = {"color": series(number), "marker": marker(number), "markersize": 7, "markeredgecolor": PAPER}
    axis.plot([rate for rate, _ in known], [loss for _, loss in known], **style)
    for rate in (rate.rate for rate in one.rates if rate.diverged):
        axis.annotate("×", (rate, 0.92), xycoords=("data", "axes fraction"), ha="center", color=series(number))
    axis.set_xscale("log")
    axis.set_xlim(rates[0] / 1.3, rates[-1] * 1.3)
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates], rotation=45 if len(rates) > 4 else 0)
    axis.minorticks_off()
    axis.set(xlabel="learning rate", ylabel="validation loss", ylim=ends)


def _name(one: RateSeries) -> str:
    return ", ".join(filter(None, (f"{BATCH_SIZE.removeprefix('training.')} {one.batch_size}", one.others)))


_LABEL = 26
_ZERO = 5e-4
"""Change below which a figure is printed as 0.0 %."""


class Estimates(NamedTuple):
    """Estimates of one metric by the name of their row."""

    title: str
    by_row: Mapping[str, ChangeEstimate]
    exact: bool
    """True if the metric repeats exactly, so that an estimate needs no interval."""


def estimate_panels(found: Sequence[Estimates], label: str) -> tuple[Panel, ...]:
    """Return panels of estimates in percent with their intervals; empty if there are none."""
    names = list(dict.fromkeys(name for one in found for name in one.by_row))
    labels = tuple(textwrap.fill(re.sub(r"(?<=\S)\+", "+ ", name), _LABEL) for name in names)
    if not names:
        return ()
    height = 0.2 + 0.16 * max(1 + one.count("\n") for one in labels)
    size = 0.8 + height * len(names)
    return tuple(Panel(one.title, partial(_draw_estimates, one, names, labels, label), size, labels) for one in found)


def _draw_estimates(found: Estimates, names: Sequence[str], labels: Sequence[str], label: str, axis: Any) -> None:
    axis.axvline(0, color=SOFT, linewidth=1)
    for place, name in enumerate(names):
        if name in found.by_row:
            _estimate(axis, place, found.by_row[name], found.exact)
    axis.grid(axis="y", visible=False)
    axis.margins(x=0.25)
    axis.set_yticks(range(len(names)), labels, color=INK)
    axis.set_ylim(len(names) - 0.4, -0.7)
    axis.set_xlabel(label)
    axis.xaxis.get_major_locator().set_params(nbins=5)


def _estimate(axis: Any, place: int, one: ChangeEstimate, exact: bool) -> None:
    low, high = one.interval or (one.value, one.value)
    sure = abs(one.value) > _ZERO if exact else one.interval is not None and not low <= 0 <= high
    colour = series(1) if sure else series(0)
    axis.plot([100 * low, 100 * high], [place, place], color=colour, linewidth=2.2, zorder=2)
    axis.plot(100 * one.value, place, color=colour, marker=marker(0), markersize=6, markeredgecolor=PAPER, zorder=3)
    axis.annotate(
        format_percent(one.value).removesuffix(" %"),
        (100 * one.value, place),
        (0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color=INK,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": PAPER, "edgecolor": "none"},  # the line of zero may pass there
    )


_SUM, _WHOLE = "sum of the parts", "all together"
_MOST_PARTS = 8
"""Most parts of a stack that is drawn."""


def part_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return the panels of the stacks in the order of the rows; empty if no row has parts of its own."""
    known, rows = metrics(), study.comparison.record.treatments
    numbers = {name: study.number(name) for name in rows}
    found = [
        (rows.index(one.row), one, each.metric)
        for each in study.of(deviations)
        if known[each.metric].unit in ("bytes", "seconds")
        for one in each.deviations
        if len(one.singles) <= _MOST_PARTS
    ]
    found.sort(key=lambda one: one[0])
    names = study.comparison.names
    return tuple(_parts_panel(one, metric, numbers, names) for _, one, metric in found[:MOST])


def _parts_panel(one: Deviation, metric: str, numbers: dict[str, int], labels: Mapping[str, str]) -> Panel:
    names = tuple(map(wrap_row_name, (*(labels[row] for row in one.singles), _SUM, _WHOLE)))
    lines = max(1 + name.count("\n") for name in names)
    heading = f"{labels[one.row]}: {title(metric)}"
    return Panel(heading, partial(_draw_parts, one, names, numbers), 0.8 + (0.12 + 0.14 * lines) * len(names), names)


def _draw_parts(one: Deviation, names: tuple[str, ...], numbers: dict[str, int], axis: Any) -> None:
    ends, coloured = [0.0, *accumulate(one.parts)], zip(one.singles, one.parts, strict=True)
    bars = [(ends[at], part, series(numbers[name])) for at, (name, part) in enumerate(coloured)]
    bars += [(0.0, one.expected, SOFT), (0.0, one.change, series(numbers[one.row]))]
    for place, (start, size, colour) in enumerate(bars):
        axis.barh(
            place, 100 * size, left=100 * start, height=0.62, color=colour, alpha=0.45 if colour == SOFT else 0.85
        )
        side = 1 if size >= 0 else -1
        axis.annotate(points(size), (100 * (start + size), place), (4 * side, 0), textcoords="offset points",
                      ha="left" if side > 0 else "right", va="center", fontsize=8, color=INK)  # fmt: skip
    for place, end in enumerate(ends[1:]):
        axis.plot([100 * end, 100 * end], [place, place + 1], color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
    axis.axvline(0, color=SOFT, linewidth=1)
    axis.set_yticks(range(len(names)), names, color=INK)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.use_sticky_edges = False  # or a bar that ends at the edge would leave no room for its number
    axis.margins(x=0.25)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("change, %")


_FIELD, _FIELD_HEIGHT, _MARGIN = 0.5, 0.27, 0.2
"""Least width of a field, its height, and the margin at the right, in inches."""
_LOWER, _HIGHER = series(1), series(2)
_STRONGEST = 0.6
"""Opacity of the field with the largest number; text remains readable on it."""
_LEAST = 0.05
"""Smallest number with the full opacity, so that a map of small numbers is pale."""
_LONG = 14
"""Longest name of a level on one line, in characters."""

Numbers = Sequence[Sequence[float | None]]


def map_panels(
    grids: Sequence[Grid], title: Callable[[str], str], labels: Mapping[Change, str] | None = None
) -> tuple[Panel, ...]:
    """Return two maps for each grid: changes against the control, and deviations from additivity.

    `title` returns the heading of a metric, and `labels` has names of levels that are not their own.
    """
    found = []
    for grid in grids:
        changes = [[None if one is None else one.change for one in row] for row in grid.fields]
        apart = _deviating(grid)
        deviations = [[None if one is None else one.deviation for one in row] for row in apart.fields]
        found.append(_map_panel(grid, labels, changes, f"{title(grid.metric)}: change, %"))
        found.append(_map_panel(apart, labels, deviations, f"{title(grid.metric)}: deviation from the sum, points"))
    return tuple(found)


def _deviating(grid: Grid) -> Grid:
    """Return a grid without the levels of the control, which deviate from nothing."""
    known = [[one is not None and one.deviation is not None for one in row] for row in grid.fields]
    down = [place for place, row in enumerate(known) if any(row)]
    across = [place for place, column in enumerate(zip(*known, strict=True)) if any(column)]
    if not down:
        return grid
    return grid.model_copy(
        update={
            "down_levels": tuple(grid.down_levels[place] for place in down),
            "across_levels": tuple(grid.across_levels[place] for place in across),
            "fields": tuple(tuple(grid.fields[row][place] for place in across) for row in down),
        }
    )


def _map_panel(grid: Grid, labels: Mapping[Change, str] | None, numbers: Numbers, heading: str) -> Panel:
    known = labels or {}
    names = tuple(_broken(known.get((grid.down, one), one)) for one in grid.down_levels)
    across = tuple(_stacked(known.get((grid.across, one), one)) for one in grid.across_levels)
    lines = max(1 + name.count("\n") for name in across)
    height = 0.6 + 0.16 * lines + _FIELD_HEIGHT * len(names)
    longest = max(len(line) for name in across for line in name.split("\n"))
    field = max(_FIELD, CHARACTER * (longest + 1))
    narrow = Panel(heading, partial(_map, (names, across), numbers), height, names)
    return narrow._replace(width=max(WIDTH, narrow.left + field * len(across) + _MARGIN))


def _map(levels: tuple[Sequence[str], Sequence[str]], numbers: Numbers, axis: Any) -> None:
    from matplotlib.patches import Rectangle

    largest = max([_LEAST, *(abs(one) for row in numbers for one in row if one is not None)])
    for place, row in enumerate(numbers):
        for column, one in enumerate(row):
            if one:
                colour, strength = (_LOWER if one < 0 else _HIGHER), _STRONGEST * abs(one) / largest
                field = Rectangle(
                    (column - 0.48, place - 0.46), 0.96, 0.92, facecolor=colour, alpha=strength, linewidth=0
                )
                axis.add_patch(field)
            axis.text(column, place, UNKNOWN if one is None else points(one), ha="center", va="center", fontsize=8,
                      color=SOFT if one is None else INK)  # fmt: skip
    down, across = levels
    axis.set_xticks(range(len(across)), across)
    axis.set_yticks(range(len(down)), down, color=INK)
    axis.set_xlim(-0.5, len(across) - 0.5)
    axis.set_ylim(len(down) - 0.5, -0.5)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


def _broken(name: str) -> str:
    """Return a stack of optimizations on several lines, if it is long."""
    return name if len(name) <= _LONG else wrap_row_name(name)


def _stacked(name: str) -> str:
    """Return the name of a column, which has a field's width, with a line for each word."""
    return _broken(name).replace("× ", "×\N{NO-BREAK SPACE}").replace(" ", "\n")
