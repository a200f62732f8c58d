"""Style of figures: one palette and one type for light paper, dark screens and print.

Matplotlib knows fixed colours only, but a page follows the reader's preference. Figures are therefore drawn in marker
colours that represent a role, and in the finished SVG each marker becomes a CSS variable of the page. Hues are those of
Okabe and Ito, which remain distinct in the common forms of colour blindness. Every series also has its own marker
shape.
"""

import io
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def printed(figure: "Figure") -> "Figure":
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
