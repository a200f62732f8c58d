"""Figure of an answer: tokens per second against memory, with the recommended stack."""

from typing import TYPE_CHECKING

from assay.report.kit.drawing import canvas, marker, printed, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.advise.advice import Advice

_MIB = 2**20


def figure(found: "Advice") -> "Figure":
    """Return the figure of memory and speed: the frontier, the recommended stack and the bare configuration."""
    groups = {"frontier": found.frontier, "recommended": (found.recommended,), "nothing": (found.baseline,)}
    with canvas(5.0, 3.6, 1) as (drawn, (axis,)):
        for number, (label, points) in enumerate(groups.items()):
            axis.plot(
                [one.need_bytes / _MIB for one in points],
                [one.tokens_per_second for one in points],
                color=series(number + 1),
                marker=marker(number + 1),
                linestyle="-" if label == "frontier" else "none",
                label=label,
            )
        axis.axvline(found.budget_bytes / _MIB, linewidth=0.8, linestyle=":")
        axis.set(xlabel="needs, MiB", ylabel=found.speed_unit, xscale="log")
        axis.legend()
    return printed(drawn)
