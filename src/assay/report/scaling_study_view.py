"""The view of a study of scaling: whether its law predicted the largest run, with its page and figures.

Everything follows from the record, so the same record gives the same bytes.

Each figure is small enough for a narrow screen. The first is that of the GPT-4 report (OpenAI 2023): losses in
normalised compute, the fit, and the large run that was predicted. Sizes have a colour and a shape of their own in all
figures.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from assay.analysis.comparison import Comparison, analyse
from assay.records.study import AGAIN
from assay.report.kit.blocks import Block
from assay.report.kit.drawing import (
    DARK,
    INK,
    LIGHT,
    PAPER,
    SMALL,
    SOFT,
    canvas,
    marker,
    series,
    smooth,
    svg,
    variables,
)
from assay.report.kit.view import View
from assay.report.laws import FitView
from assay.report.scaling_study import (
    cautions,
    meanings,
    minima_report,
    prediction_table,
    rates_table,
    runs_table,
    verdict,
)
from assay.scaling.scaling_study import ScalingAnswer, StudyPoint, answer_of, to_frame
from assay.units import format_count, format_flops, format_power

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class ScalingView(View):
    """Law, predictions and runs of a study of scaling, as a reader is shown them."""

    def __init__(self, found: ScalingAnswer) -> None:
        self.found = found

    @cached_property
    def comparison(self) -> Comparison:  # type: ignore[override]
        """The rows of the study, whose tables are beside the page."""
        return analyse(self.found.record)

    def blocks(self) -> Iterator[Block]:
        """Yield the verdict, the minima of the budgets, the test of the rates, every run, and the law."""
        from assay.report.scaling_study import answer_report

        return answer_report(self.found)

    def printed(self) -> Iterator[Block]:
        """Yield the whole report, because there is no table above it."""
        yield from self.blocks()
        yield ""

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines: the verdict, what it rests on, and what to run next."""
        from assay.report.scaling_study import closing

        return closing(self.found)

    def values(self) -> dict[str, Any]:
        """Return law, predictions and points as plain values for JSON."""
        from assay.report.scaling_study import answer_values

        return answer_values(self.found)

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the template of the page, and its content."""

        return "scaled.html", content(self.found)

    def frame(self) -> "pandas.DataFrame":
        """Return a row for each run."""
        return to_frame(self.found.points)

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure of losses in normalised compute, with the held-out run."""
        from assay.report.kit.drawing import with_print_colours

        drawn = compute_figure(self.found)
        return None if drawn is None else with_print_colours(drawn)


def view(found: ScalingAnswer) -> ScalingView:
    """Return the view of an answer."""
    return ScalingView(found)


def answer_view(comparison: Comparison) -> ScalingView | None:
    """Return the view of the answer to a comparison's record; None while too few runs have ended."""
    found = answer_of(comparison.record)
    if found is None:
        return None
    made = ScalingView(found)
    made.__dict__["comparison"] = comparison
    return made


_HEIGHT = 3.7
_BEYOND = 2.0
"""The dotted line goes on beyond the largest run by this factor."""


class ScaledFigure(NamedTuple):
    """A figure of the page."""

    title: str
    caption: str
    draw: "Callable[[ScalingAnswer], Figure | None]"


def compute_figure(found: ScalingAnswer) -> "Figure | None":
    """Draw losses against compute over that of the largest run, the law's best loss, and the held-out run."""
    most = max(one.flops for one in found.points)
    fitted = [one.flops for one in found.fitted]
    with canvas(SMALL, _HEIGHT) as (figure, (axis,)):
        _sizes(axis, found, lambda one: (one.flops / most, one.loss), found.fitted)
        for low, high, style in (
            (min(fitted), max(fitted), "-"),
            (max(fitted), _BEYOND * most, (0, (1, 1.6))),
        ):
            flops = np.geomspace(low, high, 60)
            axis.plot(flops / most, [_best(found, one) for one in flops], color=INK, linestyle=style, linewidth=1.4)
        for one in found.predictions:
            axis.plot(one.point.flops / most, one.point.loss, **_held_out())
            axis.errorbar(
                *(one.point.flops / most, one.loss, [[one.loss - one.low], [one.high - one.loss]]),
                fmt="_",
                color=series(2),
                capsize=4,
                markersize=9,
                zorder=4,
            )
        axis.set(
            xscale="log", xlabel="compute, as a share of the largest run's", ylabel="validation loss, nats per token"
        )
        _ticks(axis, "{:g}".format, (1,))
        _legend(axis, found)
        return figure


def isoflop_figure(found: ScalingAnswer) -> "Figure | None":
    """Draw the losses of each budget by size, their parabola, and its minimum."""
    if found.isoflop is None:
        return None
    with canvas(SMALL, _HEIGHT) as (figure, (axis,)):
        for number, one in enumerate(found.isoflop.parabolas, start=1):
            sizes = np.geomspace(one.sizes.min(), one.sizes.max(), 40)
            axis.plot(sizes, one.loss(sizes), color=series(number), linewidth=1.2)
            axis.plot(one.sizes, one.losses, **_shape(number), label=format_power(one.flops))
            if one.inside is not None:
                axis.plot(one.inside, float(one.loss(one.inside)), marker="x", color=INK, linestyle="none", zorder=5)
        axis.set(xscale="log", xlabel="parameters", ylabel="validation loss, nats per token")
        _ticks(axis, format_count, (1, 2, 5))
        axis.legend(title="FLOPs", frameon=False, fontsize=7.5, title_fontsize=7.5, ncols=2)
        return figure


def envelope_figure(found: ScalingAnswer) -> "Figure | None":
    """Draw the training loss of every run by compute, and the lowest of all runs at each compute."""
    curves = list(_training(found))
    if not curves:
        return None
    grid = np.geomspace(min(flops[0] for _, flops, _ in curves), max(flops[-1] for _, flops, _ in curves), 200)
    with canvas(SMALL, _HEIGHT) as (figure, (axis,)):
        for number, flops, losses in curves:
            axis.plot(flops, losses, color=series(number), linewidth=0.8, alpha=0.7)
        reached = [np.interp(grid, flops, losses, left=np.inf, right=np.inf) for _, flops, losses in curves]
        lowest = np.minimum.accumulate(np.min(reached, axis=0))
        axis.plot(grid, lowest, color=INK, linewidth=1.4)
        axis.set(xscale="log", xlabel="FLOPs so far", ylabel="training loss, smoothed")
        _ticks(axis, _power, (1,))
        axis.set_ylim(top=float(np.quantile(np.concatenate([losses for _, _, losses in curves]), 0.97)))
        _legend(axis, found, lines=True)
        return figure


def residual_figure(found: ScalingAnswer) -> "Figure | None":
    """Draw by how much each loss lies above the law, by compute."""

    def above(one: StudyPoint) -> tuple[float, float]:
        return one.flops, 100 * (one.loss / float(found.law.law.loss(one.parameters, one.tokens)) - 1)

    with canvas(SMALL, _HEIGHT) as (figure, (axis,)):
        axis.axhline(0, color=SOFT, linewidth=1)
        _sizes(axis, found, above, found.fitted)
        for one in found.predictions:
            axis.plot(*above(one.point), **_held_out())
        axis.set(xscale="log", xlabel="FLOPs", ylabel="loss over the law's, %")
        _ticks(axis, _power, (1,))
        _legend(axis, found)
        return figure


def prediction_figure(found: ScalingAnswer) -> "Figure | None":
    """Draw the interval of each predicted loss, and the loss that the run reached."""
    if not found.predictions:
        return None
    with canvas(SMALL, 1.1 + 0.45 * len(found.predictions)) as (figure, (axis,)):
        for place, one in enumerate(found.predictions):
            axis.plot([one.low, one.high], [place, place], color=series(2), linewidth=5, alpha=0.45)
            axis.plot(one.loss, place, marker="|", color=series(2), markersize=14, markeredgewidth=2)
            axis.plot(one.point.loss, place, **_held_out())
        axis.set_yticks(
            range(len(found.predictions)), [f"{one.point.layers} × {one.point.width}" for one in found.predictions]
        )
        axis.set(xlabel="validation loss, nats per token", ylim=(-0.6, len(found.predictions) - 0.4))
        axis.grid(axis="y", visible=False)
        return figure


FIGURES = (
    ScaledFigure(
        "Loss by compute",
        "The line is the law's lowest loss at each compute, dotted beyond the points of the fit. The star is "
        "the run that was held out. The bar is its predicted loss with the 95 % interval.",
        compute_figure,
    ),
    ScaledFigure(
        "The held-out run",
        "Star: the loss that the run reached. Line and band: the law's prediction and its 95 % interval.",
        prediction_figure,
    ),
    ScaledFigure(
        "Sizes at equal compute",
        "Each budget of FLOPs has a parabola in the logarithm of the size. A cross marks its minimum, if the trained "
        "sizes enclose it.",
        isoflop_figure,
    ),
    ScaledFigure(
        "Training curves and their envelope",
        "Training losses by the compute spent so far; the dark line is the lowest of all. Before its end a run is "
        "worse than one that ends there, because its learning rate has not fallen yet.",
        envelope_figure,
    ),
    ScaledFigure(
        "Residuals",
        "Above zero the law is too low. A trend with compute would go on beyond the fitted runs.",
        residual_figure,
    ),
)
"""Figures in the order of the page."""


def _best(found: ScalingAnswer, flops: float) -> float:
    return float(found.law.law.loss(*found.law.law.optimum(float(flops))))


def _widths(found: ScalingAnswer) -> list[int]:
    return sorted({one.width for one in found.points})


def _number(found: ScalingAnswer, width: int) -> int:
    return 1 + _widths(found).index(width)


def _shape(number: int) -> dict[str, Any]:
    return {
        "color": series(number),
        "marker": marker(number),
        "markersize": 4.5,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.5,
        "linestyle": "none",
    }


def _held_out() -> dict[str, Any]:
    return {
        "color": INK,
        "marker": "*",
        "markersize": 12,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.6,
        "linestyle": "none",
        "zorder": 6,
    }


def _sizes(
    axis: Any, found: ScalingAnswer, at: Callable[[StudyPoint], tuple[float, float]], points: Sequence[StudyPoint]
) -> None:
    """Draw points, each size in its colour and shape."""
    for width in _widths(found):
        places = [at(one) for one in points if one.width == width]
        if places:
            axis.plot(*zip(*places, strict=True), **_shape(_number(found, width)))


def _legend(axis: Any, found: ScalingAnswer, *, lines: bool = False) -> None:
    """Add the sizes and, if it is drawn, the held-out run."""
    from matplotlib.lines import Line2D

    sizes = {one.width: one.parameters for one in found.points}
    handles = []
    for width in _widths(found):
        number, label = _number(found, width), format_count(sizes[width])
        style = {"color": series(number), "linewidth": 1.6} if lines else _shape(number)
        handles.append(Line2D([], [], label=label, **style))
    if found.predictions and not lines:
        handles.append(Line2D([], [], label="held out", **{**_held_out(), "markersize": 9}))
    axis.legend(handles=handles, frameon=False, fontsize=7.5, ncols=2, labelcolor=INK)


def _training(found: ScalingAnswer) -> Any:
    """Yield the number of its size, FLOPs and smoothed training losses of each run at the rule's rate."""
    known = {one.row: one for one in found.points if one.role != "rate"}
    for one in found.record.cells:
        point = known.get(one.cell.treatment)
        if point is None or one.cell.treatment == AGAIN or len(one.curve.train_loss) < 2:
            continue
        steps, losses = smooth(one.curve.train_loss)
        yield _number(found, point.width), [(step + 1) * point.flops / point.steps for step in steps], losses


def _ticks(axis: Any, text: Callable[[float], str], subs: tuple[int, ...]) -> None:
    """Write the numbers of a logarithmic axis at some places of each power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.xaxis.set_major_locator(LogLocator(subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    return f"1e{round(np.log10(value))}"


def content(found: "ScalingAnswer") -> dict[str, Any]:
    """Return what the template `scaled.html` shows."""
    record = found.record
    first, *others = verdict(found)
    return {
        "record": record,
        "heading": first,
        "sentences": others,
        "runs_said": _runs_said(found),
        "drawn": [one for figure in FIGURES if (one := _drawn(figure, found)) is not None],
        "prediction": list(prediction_table(found)),
        "minima": list(minima_report(found)),
        "rates": list(rates_table(found)),
        "cautions": list(cautions(found)),
        "law": list(FitView(found.law).blocks()),
        "runs": runs_table(found),
        "meanings": meanings(found),
        "light": variables(LIGHT),
        "dark": variables(DARK),
    }


def _runs_said(found: "ScalingAnswer") -> str:
    sizes = [one.parameters for one in found.points]
    data = found.record.base.data
    return (
        f"{len(found.points)} runs of {format_count(min(sizes))} to {format_count(max(sizes))} parameters on "
        f"{data.source} in {data.tokenizer} tokens, {format_flops(sum(one.flops for one in found.points))} in all. "
        f"{found.record.created.replace('T', ' ')[:16]} UTC."
    )


def _drawn(figure: Any, found: "ScalingAnswer") -> dict[str, Any] | None:
    drawn = figure.draw(found)
    if drawn is None:
        return None
    return {"title": figure.title, "caption": figure.caption, "svg": Markup(svg(drawn, figure.title))}
