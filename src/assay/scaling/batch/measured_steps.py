"""Measured steps to one loss at several batch sizes, from a CSV file."""

from collections.abc import Mapping
from pathlib import Path

from assay.errors import UsageError
from assay.scaling.batch.critical import LEAST_BATCHES
from assay.scaling.points_table import read_table

_NAMES: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "batch size", "b"),
    "steps": ("steps", "s", "training steps"),
}
"""Headings by which a column is known, in lower case."""
_LEAST, _MOST = 1.0, 1e20


def read_steps(path: Path) -> tuple[list[float], list[float]]:
    """Return batch sizes and steps.

    Raises `UsageError` with one sentence if the file cannot be read, lacks a column, has an impossible number, or too
    few batch sizes.
    """
    table = read_table(path, "batch sizes and steps")
    named = table.headings(_NAMES)
    if len(named) < len(_NAMES):
        raise UsageError(f"{path} needs the columns batch and steps: steps to one loss at several batch sizes")
    batches, steps = (table.numbers(named[kind], _LEAST, _MOST) for kind in _NAMES)
    different = len(set(batches))
    if different < LEAST_BATCHES:
        raise UsageError(
            f"{path} has {different} batch size{'s' if different > 1 else ''}; a critical batch size needs "
            f"{LEAST_BATCHES}, far apart, each with its steps to the same loss"
        )
    return batches, steps
