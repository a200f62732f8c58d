"""Figures as text, with a dash for a missing one. Imports only units."""

from assay.units import format_bytes

UNKNOWN = "–"
"""Text of a missing figure."""


def figure(value: float | None, digits: int = 4) -> str:
    """Format a plain number, or a dash if it is missing."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def amount(count: float | None) -> str:
    """Format bytes, or a dash if they are missing."""
    return UNKNOWN if count is None else format_bytes(count)
