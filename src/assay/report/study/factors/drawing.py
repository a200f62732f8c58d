"""Figure of estimates with their intervals: a panel for each metric, the same rows in each."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.analysis.factors.changes import Estimate
from assay.report.page.theme import INK, PAPER, SOFT, canvas, marker, series
from assay.units import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _LABEL = 9.6, 36
_ZERO = 5e-4
"""Change below which a figure is printed as 0.0 %."""


class Panel(NamedTuple):
    """Estimates of one metric by the name of their row."""

    title: str
    estimates: Mapping[str, Estimate]
    exact: bool
    """True if the metric repeats exactly, so that an estimate needs no interval."""


def draw_estimates(panels: Sequence[Panel], label: str) -> "Figure | None":
    """Draw estimates in percent with their intervals; None if there are none."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.estimates))
    if not names:
        return None
    labels = [textwrap.fill(re.sub(r"(?<=\S)\+", "+ ", name), _LABEL) for name in names]
    height = 0.2 + 0.16 * max(1 + label.count("\n") for label in labels)
    with canvas(_WIDTH, 0.9 + height * len(names), len(panels), sharey=True) as (figure, axes):
        for axis, panel in zip(axes, panels, strict=True):
            axis.axvline(0, color=SOFT, linewidth=1)
            for place, name in enumerate(names):
                if name in panel.estimates:
                    _estimate(axis, place, panel.estimates[name], panel.exact)
            axis.set_title(panel.title)
            axis.grid(axis="y", visible=False)
            axis.margins(x=0.25)
        axes[0].set_yticks(range(len(names)), labels, color=INK)
        axes[0].set_ylim(len(names) - 0.4, -0.7)
        figure.supxlabel(label, fontsize="medium", color=SOFT)
        return figure


def _estimate(axis: Any, place: int, one: Estimate, exact: bool) -> None:
    low, high = one.interval or (one.value, one.value)
    sure = abs(one.value) > _ZERO if exact else one.interval is not None and not low <= 0 <= high
    colour = series(1) if sure else series(0)
    axis.plot([100 * low, 100 * high], [place, place], color=colour, linewidth=2.2, zorder=2)
    axis.plot(100 * one.value, place, color=colour, marker=marker(0), markersize=6, markeredgecolor=PAPER, zorder=3)
    axis.annotate(
        format_percent(one.value).removesuffix(" %"),
        (100 * one.value, place),
        (0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color=INK,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": PAPER, "edgecolor": "none"},  # the line of zero may pass there
    )
