"""A few shapes that make an SVG file, in the palette of the report's pages, on a light or a dark screen.

Written by hand and not by a plotting library, so that the same numbers give the same bytes with every version of it,
and a page in the repository can be checked against the code. Nothing measures text: who draws leaves room for it.
"""

from html import escape

from assay.report.kit.drawing import DARK, LIGHT

_ROLES = {
    "paper": ("#fcfcfa", "#161615"),
    "ink": ("#1d1c1a", "#ecebe7"),
    "soft": ("#66645f", "#a5a39d"),
    "grid": ("#e4e2dc", "#35342f"),
    "panel": ("#f4f3ef", "#20201e"),
    **{f"s{index}": pair for index, pair in enumerate(zip(LIGHT, DARK, strict=True))},
}
"""By name: on paper, on a dark screen. The series are those of the figures of a comparison."""

WIDTH = 860


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """Shapes in the order in which they lie on each other; y grows downwards."""

    def __init__(self, title: str, height: float, width: float = WIDTH) -> None:
        self.title, self.width, self.height = title, width, height
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, **more: float | str) -> None:
        """A rectangle; `label` is written into its middle, in `size`; `opacity` and `edge` are as they say."""
        edge = f' stroke="var(--{more["edge"]})"' if "edge" in more else ""
        opacity = f' fill-opacity="{more["opacity"]}"' if "opacity" in more else ""
        self._shapes.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="2" '
            f'fill="var(--{colour})"{opacity}{edge}/>'
        )
        if "label" in more:
            size = float(more.get("size", 12))
            role = str(more.get("ink", "paper" if colour.startswith("s") else "ink"))
            middle = y + height / 2 + 0.35 * size
            self.text(x + width / 2, middle, str(more["label"]), size=size, at="middle", role=role)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        at: str = "start",
        role: str = "ink",
        bold: bool = False,
    ) -> None:
        """A line of text whose `start`, `middle` or `end` is at x."""
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{at}" '
            f'fill="var(--{role})"{weight}>{escape(text)}</text>'
        )

    def line(
        self,
        x: float,
        y: float,
        to_x: float,
        to_y: float,
        role: str = "soft",
        *,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """A straight line, perhaps with a head at its end."""
        head = ' marker-end="url(#head)"' if arrow else ""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self._shapes.append(
            f'<path d="M{_n(x)} {_n(y)} L{_n(to_x)} {_n(to_y)}" stroke="var(--{role})" stroke-width="1.4" '
            f'fill="none"{head}{dashes}/>'
        )

    def key(self, x: float, y: float, entries: dict[str, str], step: float = 120) -> None:
        """What each colour stands for, in a row."""
        for index, (label, colour) in enumerate(entries.items()):
            self.box(x + index * step, y - 10, 12, 12, colour)
            self.text(x + index * step + 18, y, label, size=12, role="soft")

    def svg(self) -> str:
        """The file's text."""
        light, dark = ("".join(f"--{name}:{pair[side]};" for name, pair in _ROLES.items()) for side in (0, 1))
        style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        font = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif"
        head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        shapes = "\n".join(self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} {_n(self.height)}" '
            f'width="{_n(self.width)}" height="{_n(self.height)}" role="img" font-family="{font}">\n'
            f"<title>{escape(self.title)}</title>\n<style>{style}</style>\n"
            f'<defs>{head}<path d="M0 0 L8 4 L0 8 z" fill="var(--soft)"/></marker></defs>\n'
            f'<rect width="100%" height="100%" fill="var(--paper)"/>\n{shapes}\n</svg>\n'
        )
