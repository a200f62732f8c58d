"""Figures of the choice of a row: memory against time, and loss against learning rate."""

from functools import partial
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.criteria import Criterion
from assay.analysis.choose.learning_rates import BATCH_SIZE, RateSeries, learning_rates
from assay.analysis.choose.ranking import CriteriaFront, Standing, frontier
from assay.report.page.panels import Panel, byte_unit, is_wide, logarithmic
from assay.report.page.theme import PAPER, SMALL, marker, series
from assay.report.study.choices.labels import Label, place_labels

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


_NAMED = 14
"""Most points that are named in the figure; beyond, only those of the front are."""


def front_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return memory against the time of all steps; rows on the front are filled, others hollow."""
    found = study.of(frontier)
    if not {"memory", "time"} <= {one.name for one in found.criteria}:
        return ()
    return (Panel("memory against time", partial(_draw_front, found), 4.4, width=SMALL),)


def _draw_front(found: CriteriaFront, axis: Any) -> None:
    by_name = {one.name: one for one in found.criteria}
    points = [(number, one) for number, one in enumerate(found.rows) if one.figures]
    crowded = len(points) > _NAMED
    scale, unit = byte_unit(min(one.figures["memory"] for _, one in points))
    labels = []
    for number, one in sorted(points, key=lambda point: not point[1].on_front):  # the front's names come first
        at = (one.figures["time"], one.figures["memory"] / scale)
        fill = {} if one.on_front else {"markerfacecolor": "none", "markeredgewidth": 1.6}
        axis.plot(*at, color=series(number), marker=marker(number), markersize=9, linestyle="none", **fill)
        if one.on_front or not crowded:
            labels.append(Label(_label(one, by_name.get("loss")), at))
    axis.margins(0.18)
    if is_wide([one.figures["time"] for _, one in points]):
        logarithmic(axis)
    axis.set(xlabel="time of all steps, seconds", ylabel=f"{by_name['memory'].metric.title}, {unit}")
    place_labels(axis, labels)


def _label(one: Standing, loss: Criterion | None) -> str:
    name = one.row.treatment.replace("+", "\n+ ").replace(", ", ",\n")
    return name if loss is None else f"{name}\nloss {one.figures['loss']:.3f}"


def rate_panels(study: "StudyView") -> tuple[Panel, ...]:
    """Return the loss by learning rate, a panel for each series with equal axes; rates that diverged are marked."""
    drawn = [one for one in study.of(learning_rates) if one.best is not None]
    rates = sorted({rate.rate for one in drawn for rate in one.rates})
    losses = [rate.loss for one in drawn for rate in one.rates if rate.loss is not None]
    if not losses:
        return ()
    room = 0.08 * (max(losses) - min(losses)) or 0.1
    ends = min(losses) - room, max(losses) + 2 * room
    return tuple(
        Panel(_name(one), partial(_draw_rates, one, number, rates, ends), 2.8) for number, one in enumerate(drawn, 1)
    )


def _draw_rates(one: RateSeries, number: int, rates: list[float], ends: tuple[float, float], axis: Any) -> None:
    known = [(rate.rate, rate.loss) for rate in one.rates if rate.loss is not None]
    style = {"color": series(number), "marker": marker(number), "markersize": 7, "markeredgecolor": PAPER}
    axis.plot([rate for rate, _ in known], [loss for _, loss in known], **style)
    for rate in (rate.rate for rate in one.rates if rate.diverged):
        axis.annotate("×", (rate, 0.92), xycoords=("data", "axes fraction"), ha="center", color=series(number))
    axis.set_xscale("log")
    axis.set_xlim(rates[0] / 1.3, rates[-1] * 1.3)
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates], rotation=45 if len(rates) > 4 else 0)
    axis.minorticks_off()
    axis.set(xlabel="learning rate", ylabel="validation loss", ylim=ends)


def _name(one: RateSeries) -> str:
    return ", ".join(filter(None, (f"{BATCH_SIZE.removeprefix('training.')} {one.batch_size}", one.others)))
