"""Heat maps of percent changes and of deviations from additivity, with the number in every field.

A field is filled with a colour of the theme, the fainter the smaller its number. So the page's own background shows
through, and the same figure is readable on light paper and on a dark screen.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.grids import Grid
from assay.report.formats import UNKNOWN
from assay.report.page.theme import INK, SOFT, drawing_style, series
from assay.report.study.factors.wording import points, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _FIELD, _LABELS = 9.6, 0.62, 2.0
_LOWER, _HIGHER = series(1), series(2)
_STRONGEST = 0.6
"""Opacity of the field with the largest number; text remains readable on it."""
_LEAST = 0.05
"""Smallest number with the full opacity, so that a map of small numbers is pale."""

Numbers = Sequence[Sequence[float | None]]


def draw_heat_maps(grids: Sequence[Grid]) -> "Figure | None":
    """Draw two maps for each grid: changes against the control, and deviations from additivity."""
    if not grids:
        return None
    from matplotlib.figure import Figure

    width = max(_WIDTH, _LABELS + 2 * _FIELD * max(len(grid.across_levels) for grid in grids))
    heights = [0.75 + 0.34 * len(grid.down_levels) for grid in grids]
    with drawing_style():
        figure = Figure(figsize=(width, sum(heights)), layout="constrained")
        axes = figure.subplots(len(grids), 2, squeeze=False, height_ratios=heights)
        for (left, right), grid in zip(axes, grids, strict=True):
            changes = [[None if one is None else one.change for one in row] for row in grid.fields]
            deviations = [[None if one is None else one.deviation for one in row] for row in grid.fields]
            _map(left, grid, changes, f"{title(grid.metric)}: change, %")
            _map(right, grid, deviations, "deviation from the sum, points")
            left.set_yticks(range(len(grid.down_levels)), [_broken(one) for one in grid.down_levels], color=INK)
            right.set_yticks([])
        return figure


def _map(axis: Any, grid: Grid, numbers: Numbers, heading: str) -> None:
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
    axis.set_xticks(range(len(grid.across_levels)), [_broken(one) for one in grid.across_levels])
    axis.set_xlim(-0.5, len(grid.across_levels) - 0.5)
    axis.set_ylim(len(grid.down_levels) - 0.5, -0.5)
    axis.set_title(heading)
    axis.set_xlabel(grid.across)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


def _broken(name: str) -> str:
    """Return a stack of optimizations on several lines, if it is long."""
    return name if len(name) <= 14 else name.replace("+", "\n+ ").replace(":", ":\n")
