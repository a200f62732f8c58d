"""Content of a report as plain data: facts, tables and sentences, and the texts of figures in them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
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
