"""Figure of a fitted law: losses with those of the law beside them, and residuals."""

from typing import TYPE_CHECKING

import numpy as np

from assay.report.kit.drawing import SOFT, canvas, marker, printed, series
from assay.scaling.extrapolation import extents
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.scaling.fitted import FittedLaw

_WIDTH = 9.6
_FURTHER = 10.0
"""Multiple of the largest fitted compute up to which the law's optimum is drawn, dotted."""
_NAMES = {"flops": "training FLOPs", "parameters": "parameters", "tokens": "training tokens"}


def law_figure(found: "FittedLaw") -> "Figure":
    """Draw losses and the law's by compute, with its lowest loss for each compute, and the residuals."""
    points, form = found.fit.points, found.law.form
    sizes = extents(points, form)
    with canvas(_WIDTH, 3.4, 2) as (figure, (left, right)):
        left.plot(sizes, points.loss, color=series(1), marker=marker(1), markersize=3, linestyle="none", label="points")
        left.plot(sizes, found.law.losses(points), color=series(2), marker="_", linestyle="none", label="law")
        reach = np.geomspace(sizes.min(), _FURTHER * sizes.max(), 100)
        if form.optimum(found.law.values, float(reach[0])) is not None:
            best = np.array([found.law.optimum(float(flops)) for flops in reach])
            losses, within = (
                found.law.loss(best[:, 0], reach / FLOPS_PER_PARAMETER_AND_TOKEN / best[:, 0]),
                reach <= sizes.max(),
            )
            left.plot(reach[within], losses[within], color=series(3), label="lowest for its compute")
            left.plot(reach[~within], losses[~within], color=series(3), linestyle=":", label="extrapolated")
        left.set(title="loss, and that of the law", ylabel="nats per token", xscale="log")
        left.legend(frameon=False)
        right.axhline(0, color=SOFT, linewidth=0.8)
        right.plot(sizes, 100 * found.fit.residuals, color=series(1), marker=marker(1), markersize=3, linestyle="none")
        right.set(title="residuals", ylabel="% of the loss", xscale="log")
        for axis in (left, right):
            axis.set_xlabel(_NAMES[form.extent])
            # Powers of ten would be typeset as formulas.
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+", "e"))
        return printed(figure)
