"""A figure as a person reads it, and a dash where it could not be had. Loads nothing but units."""

from assay.units import format_bytes

UNKNOWN = "–"
"""A figure that could not be had."""


def figure(value: float | None, digits: int = 4) -> str:
    """A plain figure, or a dash."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def amount(count: float | None) -> str:
    """Bytes, or a dash."""
    return UNKNOWN if count is None else format_bytes(count)
