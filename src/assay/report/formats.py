"""Figures as text, with a dash for a missing one. Imports only units."""

from typing import TYPE_CHECKING

from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from assay.analysis.metrics.base import Unit

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
