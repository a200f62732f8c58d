"""How figures look: one palette and one type for light paper, dark screens and print.

Matplotlib knows fixed colours only, and a page has to follow the reader's preference. So figures are drawn in marker
colours that stand for a role, and in the finished SVG each marker becomes a CSS variable of the page. Hues are those of
Okabe and Ito, which stay apart in the common forms of colour blindness; every series has a marker shape of its own too.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
PRINTED = {INK: "#1c1c1a", SOFT: "#5c5b57", GRID: "#dedcd5", PAPER: "#ffffff"}
"""The roles' colours in a figure that is a file of its own, on white."""
_ROLES = {INK: "ink", SOFT: "soft", GRID: "grid", PAPER: "paper"}

LIGHT = ("#52514e", "#0072b2", "#d55e00", "#009e73", "#a8568c", "#b07d00", "#2b9fd8", "#7a4a2b", "#5b5bd6")
"""The baseline, then the treatments in turn; on paper."""
DARK = ("#b5b3ad", "#4ba3dd", "#f08a3c", "#2fbf93", "#d78fbb", "#e0b13c", "#7cc7f0", "#c08a66", "#9a9af5")
"""The same on a dark screen."""

_SERIES = tuple(f"#0a0a{number:02x}" for number in range(len(LIGHT)))
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")

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
    """The colour of the baseline (0) or of the n-th treatment."""
    return _SERIES[index if index == 0 else 1 + (index - 1) % (len(_SERIES) - 1)]


def marker(index: int) -> str:
    """The shape that goes with the colour."""
    return _MARKERS[index % len(_MARKERS)]


def variables(palette: tuple[str, ...]) -> dict[str, str]:
    """CSS variables of a palette, by name."""
    return {f"series-{number}": colour for number, colour in enumerate(palette)}


def variable(index: int) -> str:
    """The name of the CSS variable that `series(index)` becomes."""
    return f"series-{_SERIES.index(series(index))}"


@contextmanager
def canvas(width: float, height: float, columns: int = 1, **options: Any) -> Iterator[tuple["Figure", list[Any]]]:
    """A figure in inches with axes side by side, drawn without a display."""
    with _drawing(_STYLE, width, height, columns, **options) as drawn:
        yield drawn


@contextmanager
def sheet(width: float, height: float, columns: int = 1, **options: Any) -> Iterator[tuple["Figure", list[Any]]]:
    """The same in fixed colours, `PRINTED` and `LIGHT`, for a file of its own."""
    style = {name: PRINTED.get(value, value) if isinstance(value, str) else value for name, value in _STYLE.items()}
    with _drawing(style, width, height, columns, **options) as drawn:
        yield drawn


@contextmanager
def _drawing(
    style: Any, width: float, height: float, columns: int, **options: Any
) -> Iterator[tuple["Figure", list[Any]]]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, **options)
        yield figure, list(axes[0])


def svg(figure: "Figure", title: str) -> str:
    """The figure as an inline SVG element that takes its colours from the page."""
    from html import escape

    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    # Several figures share a page, and only what is referred to may keep its id.
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    for marker_colour, role in [*_ROLES.items(), *((one, f"series-{n}") for n, one in enumerate(_SERIES))]:
        text = text.replace(marker_colour, f"var(--{role})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
