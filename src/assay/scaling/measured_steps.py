"""Measured steps to one loss at several batch sizes, from a CSV file."""

import csv
from collections.abc import Mapping
from pathlib import Path

from assay.config.reading import read_text
from assay.errors import UsageError
from assay.scaling.batch_size import LEAST_BATCHES

_NAMES: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "batch size", "b"),
    "steps": ("steps", "s", "training steps"),
}
"""Headings by which a column is known, in lower case."""


def read_steps(path: Path) -> tuple[list[float], list[float]]:
    """Return batch sizes and steps.

    Raises `UsageError` with one sentence if the file cannot be read, lacks a column, has an impossible number, or too
    few batch sizes.
    """
    try:
        found = list(csv.DictReader(read_text(path).splitlines()))
    except (OSError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read ({error}); name a CSV file of batch sizes and steps") from error
    batches, steps = (_column(found, kind, path) for kind in _NAMES)
    if len(set(batches)) < LEAST_BATCHES:
        raise UsageError(
            f"{path} has {len(set(batches))} different batch sizes; a critical batch size needs {LEAST_BATCHES}, far "
            "apart, each with its steps to the same loss"
        )
    return batches, steps


def _column(found: list[dict[str, str]], kind: str, path: Path) -> list[float]:
    name = next((one for one in (found[0] if found else ()) if one and one.strip().lower() in _NAMES[kind]), None)
    if name is None:
        raise UsageError(f"{path} needs the columns batch and steps: steps to one loss at several batch sizes")
    return [_number(row[name], name, f"{path}, line {line}") for line, row in enumerate(found, start=2)]


def _number(text: str | None, name: str, place: str) -> float:
    try:
        value = float(text or "")
    except (TypeError, ValueError):
        raise UsageError(f"{place}: the column {name} has no number") from None
    if not 1 <= value <= 1e20:
        raise UsageError(f"{place}: {name}={value:g} is not possible; give a number from 1 to 1e20")
    return value
