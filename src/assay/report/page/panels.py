"""Small figures that stand side by side where there is room, and one below the other on a narrow screen.

A panel is a title and a function that draws on one axis. A page shows each as a figure of its own, so that the browser
arranges them, and none has to be scrolled. A notebook or a file gets all of them in one figure. Curves of several rows
have a panel each with equal axes, because curves that coincide would hide each other.
"""

import re
import textwrap
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.report.page.theme import drawing_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.4
"""Width of a panel in inches; on a screen of 400 pixels its text is about as large as that of the page."""
_RIGHT, _TOP, _BOTTOM = 0.14, 0.14, 0.56
"""Margins in inches."""
CHARACTER = 0.071
"""Width of a character of a row's name in inches."""
_NAME = 26
"""Longest line of a row's name, in characters."""
_TITLE = 44
"""Longest line of a title in a figure of several panels, in characters."""

MOST = 12
"""Most rows that have a panel of their own; the files beside the page have the others."""


_WIDE = 20.0
"""Ratio of times from which a linear axis hides the short ones."""


def is_wide(times: Sequence[float]) -> bool:
    """Return whether positive times are so far apart that an axis of them is logarithmic."""
    return min(times) > 0 and max(times) > _WIDE * min(times)


def byte_unit(count: float) -> tuple[float, str]:
    """Return the bytes and the name of the unit in which an axis shows such a count."""
    return (2**30, "GiB") if count >= 2**30 else (2**20, "MiB")


def logarithmic(axis: Any) -> None:
    """Make the horizontal axis logarithmic, with plain numbers; powers of ten would be typeset as formulas."""
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda value, _: "")


class Panel(NamedTuple):
    """One small figure."""

    title: str
    draw: Callable[[Any], None]
    """Draw on an axis of matplotlib."""
    height: float = 2.5
    """Height in inches."""
    names: tuple[str, ...] = ()
    """Names at the left of the axis, for which it leaves room; a name may have several lines."""
    width: float = WIDTH
    """Width in inches."""

    @property
    def left(self) -> float:
        """Room at the left of the axis in inches."""
        longest = max((len(line) for name in self.names for line in name.split("\n")), default=0)
        return max(0.66, 0.2 + CHARACTER * longest)


def alone(panel: Panel) -> "Figure":
    """Return a panel as a figure without its title, which a page writes above it."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(panel.width, panel.height))
        across = panel.width - panel.left - _RIGHT
        up = panel.height - _BOTTOM - _TOP
        frame = (panel.left / panel.width, _BOTTOM / panel.height, across / panel.width, up / panel.height)
        panel.draw(figure.add_axes(frame))
        return figure


def together(panels: Sequence[Panel]) -> "Figure | None":
    """Return all panels in one figure, two in a row, with titles and a legend of labels; None if there are none."""
    if not panels:
        return None
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    count = ceil(len(panels) / columns)
    heights = [0.4 + max(one.height for one in panels[columns * at : columns * (at + 1)]) for at in range(count)]
    with drawing_style():
        figure = Figure(figsize=(columns * max(one.width for one in panels), sum(heights)), layout="constrained")
        axes = list(figure.subplots(count, columns, squeeze=False, height_ratios=heights).flat)
        for axis, panel in zip(axes, panels, strict=False):
            panel.draw(axis)
            axis.set_title(textwrap.fill(re.sub(r"(?<=\S)\+", " + ", panel.title), _TITLE))
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        named = {
            label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        if named:
            figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False)
        return figure


def broken(name: str) -> str:
    """Return the name of a row on several lines, one for each technique, its fields and each level of a factor."""
    parts = re.sub(r":(?=\S)", ":\n", name.replace("+", "\n+ ").replace(", ", ",\n")).split("\n")
    short = (one if len(one) <= _NAME else one.replace("=", "=\n", 1) for part in parts for one in _lines(part))
    return "\n".join(short)


def _lines(part: str) -> list[str]:
    return textwrap.wrap(part, _NAME, break_long_words=False, break_on_hyphens=False) or [part]
