"""Figures of a comparison: changes by treatment, losses by step, and errors of the predictions.

Every figure is drawn in the marker colours of the theme; None means that there is nothing to draw. The baseline is the
first series and keeps its colour in all figures.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.records.study import BASELINE, CellResult
from assay.report.page.theme import GRID, INK, PAPER, SOFT, canvas, marker, series
from assay.report.wording import columns, fine_percent, prediction_error
from assay.units import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 9.6
_POINTS = 240
"""Most points of a curve, since more cannot be distinguished on a page."""

Curve = tuple[list[float], list[float]]


def changes(comparison: Comparison) -> "Figure | None":
    """Draw changes by treatment in percent: intervals, predictions, and a band of changes too small to tell."""
    rows = [row for row in comparison.rows if row.effects]
    if not rows:
        return None
    shown = [metric for metric in columns() if metric.unit in ("bytes", "seconds")]
    with canvas(WIDTH, 0.9 + 0.42 * len(rows), len(shown), sharey=True) as (figure, axes):
        for axis, metric in zip(axes, shown, strict=True):
            if least := comparison.resolution.get(metric.name):
                axis.axvspan(-100 * least.told / (1 + least.told), 100 * least.told, color=GRID, alpha=0.8, linewidth=0)
            axis.axvline(0, color=SOFT, linewidth=1)
            for place, row in enumerate(rows):
                _change(axis, place, row, metric.name, comparison.rows.index(row) + 1)
            axis.set_title(metric.title)
            axis.grid(axis="y", visible=False)
            axis.margins(x=0.2)
        figure.supxlabel(
            "change against the baseline, %   (hollow diamond: predicted; grey band: too small to tell)",
            fontsize="medium",
            color=SOFT,
        )
        _name_rows(axes[0], rows)
        return figure


def losses(comparison: Comparison) -> "Figure | None":
    """Draw the loss of every run by step, and its distance from the baseline at the same seed."""
    record = comparison.record
    reference = {one.cell.seed: one.curve.train_loss for one in reversed(record.references)}
    drawn = [(number, record.of(name)) for number, name in enumerate((BASELINE, *record.treatments))]
    if not any(one.curve.train_loss for _, cells in drawn for one in cells):
        return None
    with canvas(WIDTH, 3.6, 2) as (figure, (left, right)):
        for number, cells in drawn:
            for one in cells:
                style = {"color": series(number), "alpha": 1.0 if one.cell.seed == record.seeds[0] else 0.5}
                left.plot(*smooth(one.curve.train_loss), **style, **_dashes(number, len(drawn)))
                _evaluations(left, one, number)
                if number:
                    right.plot(*_distance(one, reference.get(one.cell.seed, ())), **style, linewidth=1.3)
        left.set_title("training loss, smoothed; validation as points")
        right.set_title("distance of the training loss from the baseline's")
        right.set_yscale("log")
        right.yaxis.set_major_formatter(_power_of_ten)
        right.minorticks_off()
        for axis in (left, right):
            axis.set_xlabel("optimizer step")
        left.set_ylabel("nats per token")
        if not any(len(line.get_xdata()) for line in right.lines):
            right.set_yscale("linear")
            right.set_yticks([])
            right.text(0.5, 0.5, "no treatment differs from the baseline", transform=right.transAxes, ha="center")
        else:
            # Only powers of ten have labels on the axis, so its limits are powers of ten.
            low, high = right.get_ylim()
            right.set_ylim(10 ** floor(log10(low)), 10 ** ceil(log10(high)))
        return figure


def predictions(comparison: Comparison) -> "Figure | None":
    """Draw the predicted peak of tensors against the measured one, and the error of each prediction."""
    rows = [row for row in (comparison.baseline, *comparison.rows) if prediction_error(row) is not None]
    if not rows:
        return None
    numbers = [(comparison.baseline, *comparison.rows).index(row) for row in rows]
    with canvas(WIDTH, max(3.4, 0.9 + 0.42 * len(rows)), 2) as (figure, (left, right)):
        points = [(_mebibytes(row.metrics[TENSORS_PEAK_BYTES.name]), _predicted(row)) for row in rows]
        ends = [0.9 * min(map(min, points)), 1.1 * max(map(max, points))]
        left.plot(ends, ends, color=SOFT, linewidth=1, zorder=1)
        left.text(0.98, 0.03, "on the line: as predicted", transform=left.transAxes, ha="right", color=SOFT, fontsize=8)
        for number, point in zip(numbers, points, strict=True):
            left.plot(*point, **_point(number))
        left.set(xlabel="measured, MiB", ylabel="predicted, MiB", title="peak of tensors")
        left.set_box_aspect(1)
        for place, (number, row) in enumerate(zip(numbers, rows, strict=True)):
            error = 100 * (prediction_error(row) or 0.0)
            right.plot([0, error], [place, place], color=series(number), linewidth=2)
            right.plot(error, place, **_point(number))
            right.annotate(fine_percent(error / 100), (error, place), (0, 8), textcoords="offset points",
                           ha="center", fontsize=8, color=INK)  # fmt: skip
        right.axvline(0, color=SOFT, linewidth=1)
        right.set(xlabel="predicted / measured − 1, %", title="error of the prediction")
        right.grid(axis="y", visible=False)
        reach = max(0.5, 130 * max(abs(prediction_error(row) or 0.0) for row in rows))
        right.set_xlim(-reach, reach)
        _name_rows(right, rows)
        return figure


FIGURES = {"changes": changes, "losses": losses, "predictions": predictions}
"""Figures by name."""
TITLES = {
    "changes": "Change of memory and step time against the baseline",
    "losses": "Training and validation loss by step",
    "predictions": "Predicted against measured peak of tensors",
}
"""Content of each figure in words, for readers who cannot see it."""


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
    axis.plot(100 * effect.change, place, **_point(number), zorder=3)
    axis.annotate(format_percent(effect.change), (100 * effect.change, place), (0, 8), textcoords="offset points",
                  ha="center", fontsize=8, color=INK)  # fmt: skip


def _point(number: int) -> dict[str, Any]:
    return {
        "color": series(number),
        "marker": marker(number),
        "markersize": 7,
        "markeredgecolor": PAPER,
        "linestyle": "none",
    }


def _name_rows(axis: Any, rows: Sequence[Row]) -> None:
    names = [row.treatment.replace("+", "\n+ ").replace(":", ":\n") for row in rows]
    axis.set_yticks(range(len(rows)), names, color=INK)
    axis.set_ylim(len(rows) - 0.4, -0.7)


def _dashes(number: int, count: int) -> dict[str, Any]:
    """Style of a curve: the baseline is broad and solid, treatments are dashes with gaps for each other.

    All remain visible where they coincide.
    """
    if number == 0:
        return {"linewidth": 4.5, "zorder": 1, "solid_capstyle": "butt"}
    gap = 4.0 * (count - 2)
    return {"linewidth": 1.5, "linestyle": (4.0 * (number - 1), (4.0, gap)) if gap else "solid"}


def _power_of_ten(value: float, _: int) -> str:
    """Format a power of ten as ``10⁻³``. Matplotlib's typesetting is off, because some texts are from outside."""
    power = round(log10(value))
    return f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _evaluations(axis: Any, one: CellResult, number: int) -> None:
    seen = [(step, value) for step, value in one.curve.evaluations if value is not None]
    axis.plot([step for step, _ in seen], [value for _, value in seen], **{**_point(number), "markersize": 6})


def smooth(values: Sequence[float | None]) -> Curve:
    """Return a centred running mean over a twentieth of the curve and at least three points, thinned."""
    finite = [(step, value) for step, value in enumerate(values) if value is not None and isfinite(value)]
    sums = list(accumulate((value for _, value in finite), initial=0.0))
    reach, every = max(1, len(finite) // 40), -(-len(finite) // _POINTS) or 1
    spans = [(max(0, at - reach), min(len(finite), at + reach + 1)) for at in range(0, len(finite), every)]
    means = [(sums[end] - sums[start]) / (end - start) for start, end in spans]
    return [float(step) for step, _ in finite[::every]], means


def _distance(one: CellResult, reference: Sequence[float | None]) -> Curve:
    """Return |loss − baseline's loss| by step, without steps of equal losses, which a log scale cannot show."""
    both = enumerate(zip(one.curve.train_loss, reference, strict=False))
    apart = [(float(step), abs(a - b)) for step, (a, b) in both if a is not None and b is not None and a != b]
    every = -(-len(apart) // _POINTS) or 1
    return [step for step, _ in apart][::every], [value for _, value in apart][::every]


def _predicted(row: Row) -> float:
    return _mebibytes(row.predicted.tensors_peak_bytes if row.predicted else None)


def _mebibytes(value: Any) -> float:
    return float(value) / 2**20
