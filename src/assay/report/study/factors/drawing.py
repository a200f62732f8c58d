"""Figures of estimates with their intervals: a panel for each metric, the same rows in each."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from assay.analysis.factors.changes import ChangeEstimate
from assay.report.page.panels import Panel
from assay.report.page.theme import INK, PAPER, SOFT, marker, series
from assay.units import format_percent

_LABEL = 26
_ZERO = 5e-4
"""Change below which a figure is printed as 0.0 %."""


class Estimates(NamedTuple):
    """Estimates of one metric by the name of their row."""

    title: str
    by_row: Mapping[str, ChangeEstimate]
    exact: bool
    """True if the metric repeats exactly, so that an estimate needs no interval."""


def estimate_panels(found: Sequence[Estimates], label: str) -> tuple[Panel, ...]:
    """Return panels of estimates in percent with their intervals; empty if there are none."""
    names = list(dict.fromkeys(name for one in found for name in one.by_row))
    labels = tuple(textwrap.fill(re.sub(r"(?<=\S)\+", "+ ", name), _LABEL) for name in names)
    if not names:
        return ()
    height = 0.2 + 0.16 * max(1 + one.count("\n") for one in labels)
    size = 0.8 + height * len(names)
    return tuple(Panel(one.title, partial(_draw, one, names, labels, label), size, labels) for one in found)


def _draw(found: Estimates, names: Sequence[str], labels: Sequence[str], label: str, axis: Any) -> None:
    axis.axvline(0, color=SOFT, linewidth=1)
    for place, name in enumerate(names):
        if name in found.by_row:
            _estimate(axis, place, found.by_row[name], found.exact)
    axis.grid(axis="y", visible=False)
    axis.margins(x=0.25)
    axis.set_yticks(range(len(names)), labels, color=INK)
    axis.set_ylim(len(names) - 0.4, -0.7)
    axis.set_xlabel(label)
    axis.xaxis.get_major_locator().set_params(nbins=5)


def _estimate(axis: Any, place: int, one: ChangeEstimate, exact: bool) -> None:
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
