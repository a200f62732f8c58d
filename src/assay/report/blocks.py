"""Content of a report as plain data: facts, tables and sentences. A terminal prints them, and a page shows them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


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
