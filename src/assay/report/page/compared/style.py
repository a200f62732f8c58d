"""Points and names of rows, which are the same in all figures of a comparison."""

from collections.abc import Sequence
from typing import Any

from assay.report.page.panels import broken
from assay.report.page.theme import INK, PAPER, marker, series

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


def named(rows: Sequence[str]) -> tuple[str, ...]:
    """Return the names of rows as an axis shows them."""
    return tuple(map(broken, rows))


def height(names: Sequence[str]) -> float:
    """Return the height in inches of a panel with these names."""
    return 0.75 + 0.25 * len(names) + 0.13 * sum(1 + name.count("\n") for name in names)
