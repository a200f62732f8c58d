"""Parts against the whole of a stack: a staircase of the single changes, their sum, and the change of all together.

Each step of the staircase begins where the one above it ends, as if the changes added up. The bar below is the measured
change of the whole. There is a panel for each stack and each metric in bytes or seconds.
"""

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.additivity import Deviation, deviations
from assay.analysis.metrics import metrics
from assay.report.page.panels import MOST, Panel, broken
from assay.report.page.theme import INK, SOFT, series
from assay.report.study.factors.wording import points, row_name, title

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


_SUM, _WHOLE = "sum of the parts", "all together"
_MOST_PARTS = 8
"""Most parts of a stack that is drawn."""


def part_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return the panels of the stacks in the order of the rows; empty if no row has parts of its own."""
    known, numbers = metrics(), {name: at for at, name in enumerate(study.comparison.record.treatments, start=1)}
    found = [
        (numbers[one.row], one, each.metric)
        for each in study.of(deviations)
        if known[each.metric].unit in ("bytes", "seconds")
        for one in each.deviations
        if len(one.singles) <= _MOST_PARTS
    ]
    found.sort(key=lambda one: one[0])
    return tuple(_panel(one, metric, numbers) for _, one, metric in found[:MOST])


def _panel(one: Deviation, metric: str, numbers: dict[str, int]) -> Panel:
    names = tuple(broken(name) for name in (*one.singles, _SUM, _WHOLE))
    lines = max(1 + name.count("\n") for name in names)
    heading = f"{row_name(one.changes, one.row)}: {title(metric)}"
    return Panel(heading, partial(_draw, one, names, numbers), 0.8 + (0.12 + 0.14 * lines) * len(names), names)


def _draw(one: Deviation, names: tuple[str, ...], numbers: dict[str, int], axis: Any) -> None:
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
