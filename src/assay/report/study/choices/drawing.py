"""Figures of the choice of a row: memory against time, and loss against learning rate."""

from typing import TYPE_CHECKING

from assay.analysis.choices.criteria import Criterion
from assay.analysis.choices.frontier import Standing, frontier
from assay.analysis.choices.learning_rates import BATCH_SIZE, Series, learning_rates
from assay.analysis.comparison import Comparison
from assay.report.page.theme import PAPER, SMALL, canvas, marker, series
from assay.report.study.choices.labels import Label, place_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = 14
"""Most points that are named in the figure; beyond, only those of the front are."""


def draw_front(comparison: Comparison) -> "Figure | None":
    """Draw memory against the time of all steps; rows on the front are filled, others hollow."""
    found = frontier(comparison)
    by_name = {one.name: one for one in found.criteria}
    if not {"memory", "time"} <= by_name.keys():
        return None
    points = [(number, one) for number, one in enumerate(found.rows) if one.figures]
    crowded = len(points) > _NAMED
    with canvas(SMALL, 4.4) as (figure, (axis,)):
        scale, unit = _scale(min(one.figures["memory"] for _, one in points))
        labels = []
        for number, one in sorted(points, key=lambda point: not point[1].on_front):  # the front's names come first
            at = (one.figures["time"], one.figures["memory"] / scale)
            fill = {} if one.on_front else {"markerfacecolor": "none", "markeredgewidth": 1.6}
            axis.plot(*at, color=series(number), marker=marker(number), markersize=9, linestyle="none", **fill)
            if one.on_front or not crowded:
                labels.append(Label(_label(one, by_name.get("loss")), at))
        axis.margins(0.18)
        axis.set(xlabel="time of all steps, seconds", ylabel=f"{by_name['memory'].metric.title}, {unit}")
        place_labels(axis, labels)
        return figure


def _scale(least: float) -> tuple[float, str]:
    return (2**30, "GiB") if least >= 2**30 else (2**20, "MiB")


def _label(one: Standing, loss: Criterion | None) -> str:
    name = one.row.treatment.replace("+", "\n+ ").replace(", ", ",\n")
    return name if loss is None else f"{name}\nloss {one.figures['loss']:.3f}"


def draw_rates(comparison: Comparison) -> "Figure | None":
    """Draw the loss by learning rate, a line for each series; rates that diverged are marked above."""
    drawn = [one for one in learning_rates(comparison) if one.best is not None]
    if not drawn:
        return None
    with canvas(SMALL, 3.6) as (drawing, (axis,)):
        for number, one in enumerate(drawn, 1):
            known = [(rate.rate, rate.loss) for rate in one.rates if rate.loss is not None]
            style = {"color": series(number), "marker": marker(number), "markersize": 7, "markeredgecolor": PAPER}
            axis.plot([rate for rate, _ in known], [loss for _, loss in known], label=_name(one), **style)
            for rate in (rate.rate for rate in one.rates if rate.diverged):
                axis.annotate(
                    "×",
                    (rate, 0.98 - 0.06 * number),
                    xycoords=("data", "axes fraction"),
                    ha="center",
                    color=series(number),
                )
        axis.set_xscale("log")
        rates = sorted({rate.rate for one in drawn for rate in one.rates})
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates], rotation=45 if len(rates) > 6 else 0)
        axis.minorticks_off()
        axis.set(xlabel="learning rate", ylabel="validation loss, nats per token")
        if len(drawn) > 1:
            drawing.legend(loc="outside lower center", ncols=min(3, len(drawn)), frameon=False)
        return drawing


def _name(one: Series) -> str:
    return ", ".join(filter(None, (f"{BATCH_SIZE.removeprefix('training.')} {one.batch_size}", one.others)))
