"""Predicted against measured peak of tensors, and the error of each prediction."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.report.page.compared.style import MEBI, height, name_rows, named, point
from assay.report.page.panels import Panel
from assay.report.page.theme import INK, SOFT, series
from assay.report.wording import fine_percent, prediction_error

_LEAST_REACH = 0.5
"""Smallest half width of the axis of errors, in percent."""

Numbered = Sequence[tuple[int, Row]]


def predictions(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the panels of both figures; empty if no row has a prediction and a measurement."""
    every = enumerate((comparison.baseline, *comparison.rows))
    rows = [(number, row) for number, row in every if prediction_error(row) is not None]
    if not rows:
        return ()
    names = named([row.treatment for _, row in rows])
    return (
        Panel("peak of tensors, MiB", partial(_peaks, rows), 3.2),
        Panel("error of the prediction", partial(_errors, rows), height(names), names),
    )


def _peaks(rows: Numbered, axis: Any) -> None:
    points = [(_measured(row), _predicted(row)) for _, row in rows]
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
    name_rows(axis, named([row.treatment for _, row in rows]))
    reach = max(_LEAST_REACH, 1.3 * max(map(abs, errors)))
    axis.set_xlim(-reach, reach)


def _measured(row: Row) -> float:
    value: Any = row.metrics[TENSORS_PEAK_BYTES.name]
    return float(value) / MEBI


def _predicted(row: Row) -> float:
    value: Any = row.predicted.tensors_peak_bytes if row.predicted else None
    return float(value) / MEBI
