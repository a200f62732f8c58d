"""Content of a report as plain data (facts, tables, sentences), the texts of figures in it, and all as aligned text.

A terminal shows texts of records as texts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from assay.errors import legible
from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from assay.analysis.metrics.base import Unit


@dataclass(frozen=True)
class Facts:
    """Lines of a label and a text."""

    rows: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]]) -> Self:
        """Facts from any iterable of (label, text)."""
        return cls(tuple(rows))


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    """Columns of figures, which are aligned right."""
    spare: tuple[str, ...] = ()
    """Columns that are left out first, in this order, where there is little room."""

    @classmethod
    def of(
        cls,
        columns: Iterable[str],
        rows: Iterable[Iterable[str]],
        right: Iterable[str] = (),
        spare: Iterable[str] = (),
    ) -> Self:
        """Table from any iterables of texts."""
        return cls(tuple(columns), tuple(map(tuple, rows)), frozenset(right), tuple(spare))


Block = Facts | Table | str
"""A part of a report; a text is a paragraph of its own."""


UNKNOWN = "–"
"""Text of a missing figure."""


def figure(value: float | None, digits: int = 4) -> str:
    """Format a plain number, or a dash if it is missing."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def amount(count: float | None) -> str:
    """Format bytes, or a dash if they are missing."""
    return UNKNOWN if count is None else format_bytes(count)


def quantity(value: float, unit: "Unit") -> str:
    """Format a metric's value by its unit."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    return figure(value) if unit in ("nats", "ratio") else format_count(value)


def leaves(values: object, prefix: str = "") -> dict[str, object]:
    """Flatten nested values to ``key.key`` → value; a list or an empty mapping is a value."""
    if isinstance(values, dict) and values:
        return {key: leaf for name, value in values.items() for key, leaf in leaves(value, f"{prefix}{name}.").items()}
    return {prefix.removesuffix("."): values}


def spell_value(value: object) -> str:
    """Return a value of a configuration as it is written; None is unknown."""
    if isinstance(value, list):
        return " + ".join(one if isinstance(one, str) else _spec(one) for one in value) or "none"
    return UNKNOWN if value is None else str(value)


def _spec(value: object) -> str:
    from assay.config import Spec

    return str(Spec.model_validate(value))


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
