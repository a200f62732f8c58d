"""Drawing of figures: one palette and type, panels that stand side by side, and curves with few points.

Matplotlib knows fixed colours only, but a page follows the reader's preference. Figures are therefore drawn in marker
colours that represent a role, and in the finished SVG each marker becomes a CSS variable of the page. Hues are those of
Okabe and Ito, which remain distinct in the common forms of colour blindness. Every series also has its own marker
shape.

A panel is a title and a function that draws on one axis. A page shows each as a figure of its own, so that the browser
arranges them, and none has to be scrolled. A notebook or a file gets all of them in one figure. Curves of several rows
have a panel each with equal axes, because curves that coincide would hide each other.

The number of a row decides its colour and the shape of its point. A technique has one colour in all studies: a reader
who knows one page reads the next. Rows that turn on this technique alone share it, and differ in the shape of their
points. Other rows have the colours that are left.
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, count, cycle
from math import ceil, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from assay.records.study import BASELINE, ComparisonRecord
from assay.units import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure


INK, SOFT, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
PRINTED = {INK: "#1c1c1a", SOFT: "#5c5b57", GRID: "#dedcd5", PAPER: "#ffffff"}
"""Colours of the roles in a figure file, on white."""
_ROLES = {INK: "ink", SOFT: "soft", GRID: "grid", PAPER: "paper"}

LIGHT = ("#52514e", "#0072b2", "#d55e00", "#009e73", "#a8568c", "#b07d00", "#2b9fd8", "#7a4a2b", "#5b5bd6")
"""Colours on paper: the baseline, then the treatments in turn."""
DARK = ("#b5b3ad", "#4ba3dd", "#f08a3c", "#2fbf93", "#d78fbb", "#e0b13c", "#7cc7f0", "#c08a66", "#9a9af5")
"""Colours on a dark screen, in the same order."""

_SERIES = tuple(f"#0a0a{number:02x}" for number in range(len(LIGHT)))
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
COLOURS, SHAPES = len(LIGHT) - 1, len(_MARKERS)
"""Numbers of colours besides the baseline's, and of shapes of points."""

SMALL = 5.2
"""Largest width in inches of a figure that a page fits into a narrow screen; wider ones scroll."""

_COLOURED = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
"""Properties of a figure's parts that are colours."""

_STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "assay",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "axes.unicode_minus": True,
}


def series(index: int) -> str:
    """Marker colour of the baseline (0) or of the n-th treatment."""
    return _SERIES[index if index == 0 else 1 + (index - 1) % (len(_SERIES) - 1)]


def marker(index: int) -> str:
    """Marker shape of the baseline (0) or of the n-th treatment."""
    return _MARKERS[index % len(_MARKERS)]


def variables(palette: tuple[str, ...]) -> dict[str, str]:
    """CSS variables of a palette, by name."""
    return {f"series-{number}": colour for number, colour in enumerate(palette)}


def variable(index: int) -> str:
    """Name of the CSS variable that `series(index)` becomes."""
    return f"series-{_SERIES.index(series(index))}"


@contextmanager
def canvas(width: float, height: float, columns: int = 1, **options: Any) -> Iterator[tuple["Figure", list[Any]]]:
    """Yield a figure and its axes, side by side, drawn without a display. Sizes are in inches."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, **options)
        yield figure, list(axes[0])


def drawing_style() -> AbstractContextManager[None]:
    """Matplotlib's settings while a figure is drawn or written: no typesetting of texts, equal files every time."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def with_print_colours(figure: "Figure") -> "Figure":
    """Return the figure in the fixed colours `PRINTED` and `LIGHT`, for a file or a notebook."""
    known = {**PRINTED, **dict(zip(_SERIES, LIGHT, strict=True))}
    for artist in figure.findobj():
        for name in _COLOURED:
            now = _hexadecimal(getattr(artist, f"get_{name}", lambda: "none")())
            if now in known:
                getattr(artist, f"set_{name}")(known[now])
    for axis in figure.axes:
        axis.tick_params(which="both", color=PRINTED[GRID], labelcolor=PRINTED[SOFT], grid_color=PRINTED[GRID])
    return figure


def _hexadecimal(colour: Any) -> str:
    """A colour as ``#rrggbb``; a collection's is its first. Empty for words such as ``auto`` that name none."""
    from matplotlib.colors import is_color_like, to_hex

    first = colour if is_color_like(colour) else next(iter(colour), "") if not isinstance(colour, str) else ""
    return to_hex(first) if is_color_like(first) else ""


def save(figure: "Figure", path: Path) -> None:
    """Write a figure in printed colours as PNG or SVG, by the file's suffix."""
    with drawing_style():
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def svg(figure: "Figure", title: str) -> str:
    """Return the figure as an inline SVG element that takes its colours from the page."""
    from html import escape

    stream = io.StringIO()
    with drawing_style():
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    # Several figures share a page, so only ids that are referred to are kept.
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    for marker_colour, role in [*_ROLES.items(), *((one, f"series-{n}") for n, one in enumerate(_SERIES))]:
        text = text.replace(marker_colour, f"var(--{role})")
    small = ' class="small"' if figure.get_figwidth() <= SMALL else ""
    return text.replace("<svg ", f'<svg role="img"{small} aria-label="{escape(title)}" ', 1)


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
            axis.set_title(textwrap.fill(panel.title, _TITLE))
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        named = {
            label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        if named:
            figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False)
        return figure


def wrap_row_name(name: str) -> str:
    """Return the name of a row on several lines, one for each technique and each level of a factor."""
    parts = name.replace(" + ", "\n+ ").replace(" · ", "\n· ").replace(", ", ",\n").split("\n")
    return "\n".join(line for part in parts for line in _lines(part))


def _lines(part: str) -> list[str]:
    return textwrap.wrap(part, _NAME, break_long_words=False, break_on_hyphens=False) or [part]


POINTS = 240
"""Most points of a curve, since more cannot be distinguished on a page."""

Curve = tuple[list[float], list[float]]


def smooth(values: Sequence[float | None], most: int = POINTS) -> Curve:
    """Return a centred running mean over a twentieth of the curve and at least three points, with few points."""
    finite = [(step, value) for step, value in enumerate(values) if value is not None and isfinite(value)]
    sums = list(accumulate((value for _, value in finite), initial=0.0))
    reach, every = max(1, len(finite) // 40), -(-len(finite) // most) or 1
    spans = [(max(0, at - reach), min(len(finite), at + reach + 1)) for at in range(0, len(finite), every)]
    means = [(sums[end] - sums[start]) / (end - start) for start, end in spans]
    return [float(step) for step, _ in finite[::every]], means


def plain_numbers(axis: Any) -> None:
    """Write the numbers of both axes as they are typed; powers of ten would be typeset as formulas."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(numticks=8))
        side.set_major_formatter(lambda value, _: format_count(value) if value < 1e15 else f"{value:.0e}")
        side.set_minor_formatter(NullFormatter())


_SALT = 70101
"""A number with which names of techniques that often stand beside each other have unlike colours."""


def row_numbers(record: ComparisonRecord) -> Mapping[str, int]:
    """Return the number of each row; that of the baseline is 0."""
    alone = _techniques(record)
    colours = _of_techniques(dict.fromkeys(alone.values()))
    left = cycle([one for one in range(COLOURS) if one not in colours.values()] or range(COLOURS))
    found = {BASELINE: 0}
    for place, row in enumerate(record.treatments, start=1):
        found[row] = _number(colours[alone[row]] if row in alone else next(left), place % SHAPES)
    return found


def _techniques(record: ComparisonRecord) -> dict[str, str]:
    """Return the technique by which a row differs from the control, by row, where it is one alone."""
    stacks: dict[str, set[str]] = {}
    for one in record.cells:
        if one.cell.treatment not in stacks:
            stacks[one.cell.treatment] = {spec.name for spec in one.cell.run.optimizations}
    more = {row: stacks.get(row, set()) - stacks.get(BASELINE, set()) for row in record.treatments}
    return {row: names.pop() for row, names in more.items() if len(names) == 1}


def _of_techniques(names: Mapping[str, None]) -> dict[str, int]:
    """Return a colour for each technique: that of its name, or the next that no technique before it has."""
    found: dict[str, int] = {}
    for name in names:
        own = crc32(name.encode(), _SALT) % COLOURS
        ways = [(own + step) % COLOURS for step in range(COLOURS)]
        found[name] = next((one for one in ways if one not in found.values()), own)
    return found


def _number(colour: int, shape: int) -> int:
    """Return the smallest number from 1 on that has a colour and a shape; their counts have no common divisor."""
    return next(one for one in count(1) if (one - 1) % COLOURS == colour and one % SHAPES == shape)
