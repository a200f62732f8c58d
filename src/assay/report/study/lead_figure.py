"""The one figure of a study that answers its question, chosen by what the study is.

A sweep of learning rates has its valley, a target its race, and a ladder of speeds its climb. Two factors that change
together have the map of changes, with deviations from additivity beside it. Many parts in some of their combinations
have the effect of each part on the loss. Any other timed study has memory against time with arrows from the baseline,
and one without times the differences of its losses.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.analysis.choose.answer import RowTarget, targets
from assay.analysis.choose.criteria import log_change, loss_differences, memory_metric, same_steps, time_change
from assay.analysis.choose.series import RateSeries, Rung, ladder, rate_sweep
from assay.analysis.factors.additivity import grids
from assay.analysis.factors.layout import JOINT, level_name, level_names
from assay.report.comparison.figures import break_names, height, name_rows, point
from assay.report.comparison.wording import in_nats, title
from assay.report.kit.drawing import INK, SMALL, SOFT, Panel, marker, series
from assay.report.kit.labels import Label, place_labels
from assay.report.study.sections.factor_effects import loss_parts_panels
from assay.report.study.sections.panels import map_panels
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


class LeadFigure(NamedTuple):
    """A figure with its title and the sentences below it."""

    title: str
    panels: tuple[Panel, ...]
    caption: str


def lead_figure(study: "StudyView") -> LeadFigure | None:
    """Return the figure that answers the study's question; None if no row has ended."""
    ways: Sequence[Callable[[StudyView], LeadFigure | None]] = (_valley, _race, _map, _climb, _parts, _plane, _losses)
    return next((found for way in ways if (found := way(study)) is not None and found.panels), None)


_MOST_LINES = 7
"""Most lines that have their labels beside them."""


_LETTER = 0.036
"""Room for a letter of a label at the right, as a share of the width of all lines."""


def _valley(study: "StudyView") -> LeadFigure | None:
    drawn = study.of(rate_sweep)
    if not 0 < len(drawn) <= _MOST_LINES:
        return None
    return LeadFigure(
        "Loss by learning rate",
        (Panel("", partial(_draw_valley, drawn), 3.6, width=SMALL),),
        "Mean validation loss over seeds. The large point of a line is its best rate.",
    )


def _draw_valley(drawn: Sequence[RateSeries], axis: Any) -> None:
    rates = sorted({rate.rate for one in drawn for rate in one.rates})
    labels = []
    for number, one in enumerate(drawn, start=1):
        known = [(rate.rate, rate.loss) for rate in one.rates if rate.loss is not None]
        axis.plot(*zip(*known, strict=True), color=series(number), marker=marker(number), markersize=5)
        if one.best is not None and one.best.loss is not None:
            axis.plot(one.best.rate, one.best.loss, **{**point(number), "markersize": 10})
        name = JOINT.join(level_name(*level) for level in one.levels) or f"batch {one.batch_size}"
        labels.append(Label(name, (known[-1][0], float(known[-1][1]))))
    axis.set(xscale="log", xlabel="learning rate", ylabel="validation loss")
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axis.minorticks_off()
    axis.margins(x=0.1, y=0.1)
    room = _LETTER * max(len(one.text) for one in labels)
    axis.set_xlim(right=rates[-1] * (rates[-1] / rates[0]) ** room)
    place_labels(axis, labels)


def _race(study: "StudyView") -> LeadFigure | None:
    found = study.of(targets) if study.comparison.record.target_loss is not None else None
    if found is None or len(found.rows) < 2:
        return None
    names = break_names([one.row.label for one in found.rows])
    numbers = [study.number(one.row.treatment) for one in found.rows]
    timed = any(one.seconds is not None for one in found.rows)
    return LeadFigure(
        f"Time to a {found.basis} of {found.target:g}",
        (Panel("", partial(_draw_race, found.rows, numbers, timed), height(names), names, SMALL),),
        "Time of the optimizer steps until the loss stays at or below the target.",
    )


def _draw_race(rows: Sequence[RowTarget], numbers: Sequence[int], timed: bool, axis: Any) -> None:
    for place, (one, number) in enumerate(zip(rows, numbers, strict=True)):
        spent = one.seconds if timed else one.steps
        if one.censored or spent is None:
            axis.annotate(
                "not reached", (0, place), (4, 0), textcoords="offset points", va="center", fontsize=8, color=SOFT
            )
            continue
        axis.barh(place, spent, height=0.6, color=series(number), alpha=0.85)
        text = format_seconds(spent) if timed else f"{spent:.0f} steps"
        axis.annotate(text, (spent, place), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    axis.margins(x=0.3)
    axis.set_xlim(left=0)
    axis.set_xlabel("seconds of steps" if timed else "steps")
    name_rows(axis, break_names([one.row.label for one in rows]))


def _map(study: "StudyView") -> LeadFigure | None:
    memory = memory_metric(study.comparison).name
    found = [one for one in study.of(grids) if one.metric == memory]
    if len(found) != 1 or not any(one and one.deviation is not None for row in found[0].fields for one in row):
        return None
    return LeadFigure(
        "Change of memory, and by how much changes do not add up",
        map_panels(found, lambda _: title(memory), level_names(study.comparison.record)),
        "First map: change against the baseline, in percent. Second map: that change less the sum of the single "
        "changes, in points; zero means that they add up. Blue is lower, orange is higher.",
    )


def _climb(study: "StudyView") -> LeadFigure | None:
    rungs = [one for one in study.of(ladder) if one.baseline is not None]
    if not any(one.printed is not None and one.printed.baseline is not None for one in rungs):
        return None
    names = break_names([one.row.label for one in rungs])
    numbers = [study.number(one.row.treatment) for one in rungs]
    return LeadFigure(
        "Tokens a second, as a multiple of the first rung's",
        (Panel("", partial(_draw_climb, rungs, numbers), height(names), names, SMALL),),
        "Bars are measured here; diamonds are the document's figures on its own machine.",
    )


def _draw_climb(rungs: Sequence[Rung], numbers: Sequence[int], axis: Any) -> None:
    for place, (one, number) in enumerate(zip(rungs, numbers, strict=True)):
        if one.baseline is not None:
            axis.barh(place, one.baseline.value, height=0.6, color=series(number), alpha=0.85)
            axis.annotate(f"{one.baseline.value:.2g} ×", (one.baseline.value, place), (4, 0),
                          textcoords="offset points", va="center", fontsize=8, color=INK)  # fmt: skip
        if one.printed is not None and one.printed.baseline is not None:
            axis.plot(one.printed.baseline, place, marker="d", markersize=8, linestyle="none",
                      markerfacecolor="none", markeredgecolor=INK)  # fmt: skip
    axis.axvline(1, color=SOFT, linewidth=1)
    axis.set_xlabel("× the first rung")
    name_rows(axis, break_names([one.row.label for one in rungs]))


def _parts(study: "StudyView") -> LeadFigure | None:
    return LeadFigure(
        "Effect of each part on the loss",
        loss_parts_panels(study),
        "Means over the levels of all other parts, bars their intervals. Left is better.",
    )


def _plane(study: "StudyView") -> LeadFigure | None:
    comparison, metric = study.comparison, memory_metric(study.comparison)
    if not comparison.record.timed:
        return None
    found = [
        (study.number(row.treatment), row.label, longer.fraction, memory.fraction)
        for row in comparison.rows
        if (longer := time_change(comparison, row)) is not None and (memory := log_change(row, metric)) is not None
    ]
    time = "step time" if same_steps(comparison) else "time of all steps"
    return LeadFigure(
        "Memory against time, from the baseline",
        (Panel("", partial(_draw_plane, found, study.answer, time), 3.7, width=SMALL),) if found else (),
        "Each line leads from the baseline to a change. Lower left is better.",
    )


_NOTHING = -100.0
"""Change in percent beyond which there is nothing."""
_LONG_TIME = 4.0
"""Multiple of the time from which its axis is logarithmic."""


def _draw_plane(found: Sequence[tuple[int, str, float, float]], answer: str, what: str, axis: Any) -> None:
    wide = max(longer for _, _, longer, _ in found) > _LONG_TIME
    origin, labels = (1.0, 0.0) if wide else (0.0, 0.0), []
    for number, label, longer, memory in sorted(found, key=lambda one: one[1] not in answer):
        at = (1 + longer, 100 * memory) if wide else (100 * longer, 100 * memory)
        axis.plot(*zip(origin, at, strict=True), color=series(number), linewidth=1.6, alpha=0.6)
        axis.plot(*at, **{**point(number), "markersize": 9})
        labels.append(Label(label.replace(" + ", "\n+ ").replace(" · ", "\n· "), at))
    axis.plot(*origin, **point(0))
    axis.axhline(0, color=SOFT, linewidth=0.8)
    axis.axvline(origin[0], color=SOFT, linewidth=0.8)
    if wide:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
        axis.xaxis.set_minor_formatter(lambda value, _: "")
    axis.set(xlabel=what if wide else f"change of the {what}, %", ylabel="change of memory, %")
    axis.margins(x=0.3, y=0.22)
    if not wide:
        axis.set_xlim(left=max(axis.get_xlim()[0], _NOTHING))
    axis.set_ylim(bottom=max(axis.get_ylim()[0], _NOTHING))
    place_labels(axis, [Label("baseline", origin), *labels])


def _losses(study: "StudyView") -> LeadFigure | None:
    comparison, found = study.comparison, study.of(loss_differences)
    rows = [row for row in comparison.rows if row.treatment in found]
    names = break_names([row.label for row in rows])
    drawn = [(study.number(row.treatment), found[row.treatment].nats, found[row.treatment].half) for row in rows]
    return LeadFigure(
        "Loss against the baseline's",
        (Panel("", partial(_draw_losses, drawn, names, in_nats(comparison)), height(names), names, SMALL),)
        if drawn
        else (),
        "Points are differences from the baseline at the same seed, bars their intervals. Left is better.",
    )


def _draw_losses(drawn: Sequence[tuple[int, float, float | None]], names: Sequence[str], unit: str, axis: Any) -> None:
    axis.axvline(0, color=SOFT, linewidth=1)
    for place, (number, value, half) in enumerate(drawn):
        if half:
            axis.plot([value - half, value + half], [place, place], color=series(number), linewidth=2.4)
        axis.plot(value, place, **point(number))
    axis.margins(x=0.2)
    axis.set_xlabel(f"difference of the validation loss,{unit}" if unit else "difference of the loss")
    name_rows(axis, names)
