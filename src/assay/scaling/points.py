"""Points of trained models: parameters N, training tokens D, FLOPs C and the loss that each reached.

Two of N, D and C suffice, because C = 6·N·D in the convention of the laws here. N counts embeddings or not as the file
does, and a law that is fitted to it counts the same.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assay.config.reading import read_text
from assay.errors import UsageError

Floats = npt.NDArray[np.float64]

FLOPS_PER_PARAMETER_AND_TOKEN = 6.0
"""C = 6·N·D: two FLOPs a weight forward and four backward (Kaplan et al. 2020)."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameters", "params", "n", "model size", "model_size"),
    "tokens": ("tokens", "d", "training tokens", "training_tokens"),
    "flops": ("flops", "c", "training flop", "training_flop", "training flops", "compute"),
    "loss": ("loss", "l", "val_loss", "validation loss"),
}
"""Headings by which a column is known, in lower case."""

_MOST_APART = 10.0
"""Factor by which FLOPs in a file may differ from 6·N·D; attention and embeddings explain less."""
LEAST_POINTS = 6
"""A law with five free numbers needs more points."""


@dataclass(frozen=True)
class Points:
    """Points of trained models, as arrays of one length."""

    parameters: Floats
    tokens: Floats
    loss: Floats

    @property
    def flops(self) -> Floats:
        """Training FLOPs, 6·N·D."""
        return FLOPS_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens

    @property
    def logs(self) -> tuple[Floats, Floats, Floats]:
        """Logarithms of N, D and the loss."""
        return np.log(self.parameters), np.log(self.tokens), np.log(self.loss)

    def __len__(self) -> int:
        return len(self.loss)

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "Points":
        """Return some of the points: those of a mask, or at some indices."""
        return Points(self.parameters[chosen], self.tokens[chosen], self.loss[chosen])

    def without_highest(self, count: int) -> "Points":
        """Return the points without those of the highest losses."""
        kept = np.ones(len(self), dtype=bool)
        kept[np.argsort(self.loss, kind="stable")[max(0, len(self) - count) :]] = False
        return self.where(kept)


def read_points(path: Path) -> Points:
    """Read points from a CSV file whose first line names the columns.

    Raises `UsageError` with one sentence if the file cannot be read, lacks a column, or has an impossible number.
    """
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a CSV file of points") from error
    if not rows:
        raise UsageError(f"{path} has no points; its first line names the columns, and each further line is a point")
    columns = {kind: _column(rows, kind, path) for kind in _NAMES}
    loss, given = columns.pop("loss"), {kind: values for kind, values in columns.items() if values is not None}
    if loss is None or len(given) < 2:
        raise UsageError(f"{path} needs a column loss, and two of the columns parameters, tokens and flops")
    found = _completed(given, loss)
    if "flops" in given:
        _check_units(found.flops, given["flops"], path)
    _check(found, path)
    return found


def _completed(given: Mapping[str, Floats], loss: Floats) -> Points:
    if "parameters" in given and "tokens" in given:
        return Points(given["parameters"], given["tokens"], loss)
    each = given["flops"] / FLOPS_PER_PARAMETER_AND_TOKEN
    if "parameters" in given:
        return Points(given["parameters"], each / given["parameters"], loss)
    return Points(each / given["tokens"], given["tokens"], loss)


def _column(rows: list[dict[str, str]], kind: str, path: Path) -> Floats | None:
    """Return the values of a column by any of its names; None if there is none."""
    name = next((one for one in rows[0] if one is not None and one.strip().lower() in _NAMES[kind]), None)
    if name is None:
        return None
    values = []
    for number, row in enumerate(rows, start=2):
        try:
            value = float(row[name] or "")
        except (TypeError, ValueError):
            raise UsageError(f"{path}, line {number}: the column {name} has no number") from None
        if not 0 < value < np.inf:
            raise UsageError(f"{path}, line {number}: {name}={value:g} is not possible; it must be positive")
        values.append(value)
    return np.asarray(values)


def _check_units(counted: Floats, given: Floats, path: Path) -> None:
    """Raise `UsageError` if the FLOPs of a file cannot be those of its sizes and tokens."""
    apart = np.abs(np.log(given / counted))
    worst = int(np.argmax(apart))
    if apart[worst] > np.log(_MOST_APART):
        raise UsageError(
            f"{path}, line {worst + 2}: flops={given[worst]:g}, but 6·N·D is {counted[worst]:g}; "
            "give parameters, tokens and FLOPs as plain counts"
        )


def _check(points: Points, path: Path) -> None:
    """Raise `UsageError` if the points cannot determine a law."""
    if len(points) < LEAST_POINTS:
        raise UsageError(f"{path} has {len(points)} points; a law needs at least {LEAST_POINTS}")
    for name, values in (("model size", points.parameters), ("number of tokens", points.tokens)):
        if len(np.unique(values)) < 2:
            raise UsageError(f"{path} has one {name} only; a law needs several")
    order = np.lexsort((points.tokens, points.parameters))
    same = (np.diff(points.parameters[order]) == 0) & (np.diff(points.tokens[order]) == 0)
    equal_losses = np.diff(points.loss[order]) == 0
    if np.any(same & equal_losses):
        raise UsageError(f"{path} has the same point twice; leave the copies out, or they count double")
