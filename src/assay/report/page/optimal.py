"""The figure of optimal sizes: N by compute under each law, with the answers as points."""

from typing import TYPE_CHECKING

import numpy as np

from assay.report.page.theme import canvas, marker, printed, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.scaling.asking.answer import Answers

_AROUND = 30.0
"""Factor of compute that is drawn on both sides of the answers."""


def figure(found: "Answers") -> "Figure | None":
    """Return the figure; None if every answer is refused."""
    answers = [one for one in found.answers.values() if one.optimum is not None]
    if not answers:
        return None
    ends = min(one.flops for one in answers) / _AROUND, max(one.flops for one in answers) * _AROUND
    compute = np.geomspace(*ends, 30)
    with canvas(6.5, 4.2, 1) as (drawn, (axis,)):
        for number, one in enumerate(answers, start=1):
            sizes = [one.frontier.at(float(flops)).parameters for flops in compute]
            fitted = compute <= one.frontier.reach.most
            color = series(number)
            axis.plot(compute[fitted], np.array(sizes)[fitted], color=color, linewidth=1.2, label=one.law)
            axis.plot(compute[~fitted], np.array(sizes)[~fitted], color=color, linewidth=0.9, linestyle="dotted")
            best = one.optimum
            if best is not None:
                axis.plot([best.flops], [best.parameters], color=color, marker=marker(number), linestyle="none")
        axis.set(xscale="log", yscale="log", xlabel="training FLOPs", ylabel="optimal parameters")
        axis.legend(fontsize=7, frameon=False)
        return printed(drawn)
