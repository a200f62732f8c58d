"""Figures of what laws answer: the optimal N by compute, and steps and examples by batch size."""

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.kit.drawing import SOFT, canvas, marker, printed, series
from assay.units import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.scaling.asking.answer import LawAnswers
    from assay.scaling.batch.critical import Batching

_AROUND = 30.0
"""Factor of compute that is drawn on both sides of the answers."""


def figure(found: "LawAnswers") -> "Figure | None":
    """Return the figure; None if every answer is refused."""
    answers = [one for one in found.answers.values() if one.optimum is not None]
    if not answers:
        return None
    ends = min(one.flops for one in answers) / _AROUND, max(one.flops for one in answers) * _AROUND
    compute = np.geomspace(*ends, 30)
    with canvas(6.5, 4.2, 1) as (drawn, (axis,)):
        for number, one in enumerate(answers, start=1):
            sizes = [one.frontier.at(float(flops)).parameters for flops in compute]
            color, most = series(number), one.frontier.reach.most
            within = compute <= most
            axis.plot(compute, sizes, color=color, linewidth=0.9, linestyle="dotted", label=one.law)
            axis.plot(compute[within], np.array(sizes)[within], color=color, linewidth=1.4)
            best = one.optimum
            if best is not None:
                axis.plot([best.flops], [best.parameters], color=color, marker=marker(number), linestyle="none")
        axis.set(xscale="log", yscale="log", xlabel="training FLOPs", ylabel="optimal parameters")
        _plain(axis)
        axis.legend(fontsize=7, frameon=False)
        return printed(drawn)


def batch_figure(found: "Batching") -> "Figure":
    """Return the figure of steps and examples to the same loss, over the least of each."""
    critical = found.critical
    sizes = np.geomspace(critical.size / _AROUND, critical.size * _AROUND, 60)
    with canvas(5.5, 3.8, 1) as (drawn, (axis,)):
        for number, (label, value) in enumerate((("steps", critical.steps), ("examples", critical.examples)), start=1):
            axis.plot(sizes, [value(float(size)) for size in sizes], color=series(number), linewidth=1.2, label=label)
        axis.axvline(critical.size, color=SOFT, linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel=f"batch size, {critical.unit}", ylabel="times the least")
        _plain(axis)
        axis.legend(frameon=False)
        return printed(drawn)


def _plain(axis: Any) -> None:
    """Write the numbers of both axes as they are typed; powers of ten would be typeset as formulas."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(numticks=8))
        side.set_major_formatter(lambda value, _: format_count(value) if value < 1e15 else f"{value:.0e}")
        side.set_minor_formatter(NullFormatter())
