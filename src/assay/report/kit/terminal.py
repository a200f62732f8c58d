"""Blocks as aligned text, and a terminal that shows texts of records as texts."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from assay.errors import legible
from assay.report.blocks import Block, Facts, Table

if TYPE_CHECKING:
    from rich.console import Console


def plain_text(blocks: Iterable[Block]) -> str:
    """Return the parts of a report as text, with an empty line between two of them."""
    return "\n\n".join(filter(None, map(_block, blocks)))


def _block(block: Block) -> str:
    if isinstance(block, Facts):
        return _aligned(block.rows, right=())
    if isinstance(block, Table):
        right = [place for place, column in enumerate(block.columns) if column in block.right]
        return _aligned((block.columns, *block.rows), right)
    return block


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def legible_console(**options: Any) -> "Console":
    """Return a console with options of rich's `Console`. Everything that it draws passes through `legible`.

    Styles and movements of the cursor are not texts to rich, so they stay.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Legible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=legible(segment.text))

    return Legible(**options)
