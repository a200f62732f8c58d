"""Heat maps of percent changes and of deviations from additivity, with the number in every field.

A field is filled with a colour of the theme, the fainter the smaller its number. So the page's own background shows
through, and the same figure is readable on light paper and on a dark screen.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from assay.analysis.factors.additivity import Grid
from assay.report.formats import UNKNOWN
from assay.report.page.panels import CHARACTER, WIDTH, Panel, broken
from assay.report.page.theme import INK, SOFT, series
from assay.report.study.factors.wording import points

_FIELD, _MARGIN = 0.5, 0.2
"""Least width of a field, and the margin at the right, in inches."""
_LOWER, _HIGHER = series(1), series(2)
_STRONGEST = 0.6
"""Opacity of the field with the largest number; text remains readable on it."""
_LEAST = 0.05
"""Smallest number with the full opacity, so that a map of small numbers is pale."""
_LONG = 14
"""Longest name of a level on one line, in characters."""

Numbers = Sequence[Sequence[float | None]]


def map_panels(grids: Sequence[Grid], title: Callable[[str], str]) -> tuple[Panel, ...]:
    """Return two maps for each grid: changes against the control, and deviations from additivity.

    `title` returns the heading of a metric.
    """
    found = []
    for grid in grids:
        changes = [[None if one is None else one.change for one in row] for row in grid.fields]
        deviations = [[None if one is None else one.deviation for one in row] for row in grid.fields]
        found.append(_panel(grid, changes, f"{title(grid.metric)}: change, %"))
        found.append(_panel(grid, deviations, f"{title(grid.metric)}: deviation from the sum, points"))
    return tuple(found)


def _panel(grid: Grid, numbers: Numbers, heading: str) -> Panel:
    names = tuple(map(_broken, grid.down_levels))
    across = tuple(map(_stacked, grid.across_levels))
    lines = max(1 + name.count("\n") for name in across)
    height = 0.6 + 0.16 * lines + 0.34 * len(names)
    longest = max(len(line) for name in across for line in name.split("\n"))
    field = max(_FIELD, CHARACTER * (longest + 1))
    narrow = Panel(heading, partial(_map, grid, numbers), height, names)
    return narrow._replace(width=max(WIDTH, narrow.left + field * len(across) + _MARGIN))


def _map(grid: Grid, numbers: Numbers, axis: Any) -> None:
    from matplotlib.patches import Rectangle

    largest = max([_LEAST, *(abs(one) for row in numbers for one in row if one is not None)])
    for down, row in enumerate(numbers):
        for across, one in enumerate(row):
            if one:
                colour, strength = (_LOWER if one < 0 else _HIGHER), _STRONGEST * abs(one) / largest
                field = Rectangle(
                    (across - 0.48, down - 0.46), 0.96, 0.92, facecolor=colour, alpha=strength, linewidth=0
                )
                axis.add_patch(field)
            axis.text(across, down, UNKNOWN if one is None else points(one), ha="center", va="center", fontsize=8,
                      color=SOFT if one is None else INK)  # fmt: skip
    axis.set_xticks(range(len(grid.across_levels)), [_stacked(one) for one in grid.across_levels])
    axis.set_yticks(range(len(grid.down_levels)), [_broken(one) for one in grid.down_levels], color=INK)
    axis.set_xlim(-0.5, len(grid.across_levels) - 0.5)
    axis.set_ylim(len(grid.down_levels) - 0.5, -0.5)
    axis.set_xlabel(grid.across)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


def _broken(name: str) -> str:
    """Return a stack of optimizations on several lines, if it is long."""
    return name if len(name) <= _LONG else broken(name)


def _stacked(name: str) -> str:
    """Return the name of a column, which has a field's width, with a line for each word."""
    return _broken(name).replace(" ", "\n")
