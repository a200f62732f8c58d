"""Distribution of the seconds of steady steps: a ridge for each row, on one axis of time.

A ridge is a histogram over all processes of a row, drawn on the line of its name, so that no row hides another. The
first step, those of warm-up and the first of each timed block are left out, as in all times. The few slowest steps of
all rows may be beyond the axis; the triangle at the right has their number.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.row import usable
from assay.records.study import CellResult
from assay.report.page.compared.style import name_rows, named
from assay.report.page.panels import Panel
from assay.report.page.theme import INK, SOFT, series

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
    rows = [(number, row) for number, row in enumerate((comparison.baseline, *comparison.rows))]
    found = [(number, row.treatment, steady(usable(record.of(row.treatment)))) for number, row in rows]
    known = [one for one in found if len(one[2]) > 1]
    if not known:
        return ()
    names = named([name for _, name, _ in known])
    size = 0.9 + sum(0.42 + 0.13 * name.count("\n") for name in names)
    return (Panel("seconds of steady steps", lambda axis: _draw(axis, known), size, names),)


def steady(cells: Sequence[CellResult]) -> "Floats":
    """Return the seconds of the steady steps of some processes; empty for records without them."""
    import numpy as np

    kept = []
    for one in cells:
        left_out = set(one.curve.unsteady)
        kept += [value for step, value in enumerate(one.curve.step_seconds) if step not in left_out]
    return np.array(kept, dtype=np.float64)


def _draw(axis: Any, rows: Sequence[tuple[int, str, "Floats"]]) -> None:
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
    name_rows(axis, named([name for _, name, _ in rows]))
    axis.set_ylim(len(rows) - 0.7, -1.0)
