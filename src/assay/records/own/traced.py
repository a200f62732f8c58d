"""Peak of a step that was traced on fake tensors, as plain data."""

from collections.abc import Mapping

from assay.records.base import Record


class TracedPeak(Record):
    """Highest instant of one optimizer step, in which the optimizer's state exists."""

    parameters: int
    """Number of elements of all distinct parameters."""
    peak_bytes: int
    """Highest sum of tensors alone."""
    instant: str
    """Phase and operator of the instant that `parts` describes."""
    parts: Mapping[str, int]
    """Bytes of each part of the peak; saved tensors by the class of the module that made them. On a CPU they sum to
    `peak_bytes`, on a GPU to what was requested."""
