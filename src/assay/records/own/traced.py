"""Peak of a step that was traced on fake tensors, as plain data."""

from collections.abc import Mapping

from assay.records.base import Record


class TracedPeak(Record):
    """Highest instant of one optimizer step after the first."""

    parameters: int
    """Number of elements of all distinct parameters."""
    peak_bytes: int
    instant: str
    """Phase and operator that reached it."""
    parts: Mapping[str, int]
    """Bytes of each part of the peak, which sum to it; saved tensors by the class of the module that made them."""
