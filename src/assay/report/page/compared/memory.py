"""Live memory of a step by category over its instants: the prediction of each row, and its measured peak.

An instant is the highest of its part of the step: forward and backward by block, and the update. The categories are
those of the prediction, because a measured peak has no parts. All panels have the same height of scale, so that areas
can be compared by eye.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.records.prediction import MemoryOverStep
from assay.report.page.panels import MOST, Panel, byte_unit
from assay.report.page.theme import GRID, INK, SOFT, series
from assay.units import format_bytes

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
    top = max(max(*one.alive, _measured(row) or 0) for row, one in rows)
    names = categories(comparison)
    return tuple(Panel(row.treatment, partial(_draw, row, one, names, top)) for row, one in rows[:MOST])


def categories(comparison: Comparison) -> tuple[str, ...]:
    """Return the categories of all panels, from the lowest layer on; that at index n has the colour n + 1."""
    found = [list(one.layers) for _, one in _known(comparison)]
    longest = sorted(found, key=len, reverse=True)
    return tuple(dict.fromkeys(name for names in longest for name in names))


def _known(comparison: Comparison) -> list[Known]:
    every = (comparison.baseline, *comparison.rows)
    return [(row, row.predicted.memory) for row in every if row.predicted and row.predicted.memory]


def _measured(row: Row) -> int | None:
    value = row.metrics.get(TENSORS_PEAK_BYTES.name)
    return value if isinstance(value, int) else None


def _draw(row: Row, found: MemoryOverStep, names: Sequence[str], top: int, axis: Any) -> None:
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
    measured = _measured(row)
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
