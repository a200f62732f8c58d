"""Changes of memory and time by treatment, with their intervals and predictions; a panel for each metric."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.report.page.compared.style import height, name_rows, named, point
from assay.report.page.panels import Panel
from assay.report.page.theme import GRID, INK, SOFT, series
from assay.report.wording import columns
from assay.units import format_percent


def changes(comparison: Comparison) -> tuple[Panel, ...]:
    """Return a panel for each metric in bytes or seconds that has a change."""
    rows = [row for row in comparison.rows if row.effects]
    names = named([row.treatment for row in rows])
    shown = [metric for metric in columns(comparison.run) if metric.unit in ("bytes", "seconds")]
    return tuple(
        Panel(metric.title, partial(_draw, comparison, rows, metric), height(names), names)
        for metric in shown
        if any(metric.name in row.effects for row in rows)
    )


def _draw(comparison: Comparison, rows: Sequence[Row], metric: Metric, axis: Any) -> None:
    """Draw intervals, predictions, and a band of changes too small to tell."""
    if least := comparison.resolution.get(metric.name):
        axis.axvspan(-100 * least.told / (1 + least.told), 100 * least.told, color=GRID, alpha=0.8, linewidth=0)
    axis.axvline(0, color=SOFT, linewidth=1)
    for place, row in enumerate(rows):
        _change(axis, place, row, metric.name, comparison.rows.index(row) + 1)
    axis.margins(x=0.2)
    axis.set_xlabel("change, %")
    name_rows(axis, named([row.treatment for row in rows]))


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
