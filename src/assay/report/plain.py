"""Reports as plain text with aligned columns, for `print` in a program or a notebook without HTML."""

from collections.abc import Iterable, Sequence

from assay.report.blocks import Block, Facts, Table


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
