"""Reports as HTML for a notebook: the blocks that a terminal prints, as tables with inline styles, and figures.

A notebook has its own style sheet and removes scripts, so only inline styles are used. All text is escaped.
"""

import io
from base64 import b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup

from assay.report.blocks import Block, Facts, Table
from assay.report.kit.drawing import drawing_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEFT, _RIGHT = Markup('style="text-align:left"'), Markup('style="text-align:right"')


def html(blocks: Iterable[Block], *figures: "Figure | None") -> str:
    """Return blocks and figures, one below the other, as HTML."""
    drawn = [_image(figure) for figure in figures if figure is not None]
    return str(Markup("\n").join([*map(_block, blocks), *drawn]))


def _block(block: Block) -> Markup:
    if isinstance(block, Table):
        return _table(block.columns, block.rows, block.right)
    if isinstance(block, Facts):
        return _table((), block.rows, frozenset())
    tag = "pre" if "  " in block else "p"  # a drawing is aligned with spaces
    return Markup(f"<{tag}>{{}}</{tag}>").format(block) if block else Markup()


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: Iterable[str]) -> Markup:
    aligned = [_RIGHT if column in right else _LEFT for column in columns]
    head = [_row("th", columns, aligned)] if columns else []
    body = [_row("td", row, aligned or [_LEFT] * len(row)) for row in rows]
    return Markup("<table>{}</table>").format(Markup("").join(head + body))


def _row(tag: str, cells: Iterable[str], aligned: Iterable[Markup]) -> Markup:
    made = [Markup(f"<{tag} {{}}>{{}}</{tag}>").format(style, cell) for cell, style in zip(cells, aligned, strict=True)]
    return Markup("<tr>{}</tr>").format(Markup("").join(made))


def _image(figure: "Figure") -> Markup:
    stream = io.BytesIO()
    with drawing_style():
        figure.savefig(stream, format="png", dpi=110)
    return Markup('<img src="data:image/png;base64,{}">').format(b64encode(stream.getvalue()).decode())
