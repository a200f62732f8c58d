"""Figures that cannot be: no process of assay writes them, and whoever reads a record must not believe them.

JSON has no NaN and no infinity, but readers of Python take both, and a number such as 1e999 is read as infinite. A
figure that was not finite is null in a record, or a text where the record's own class says so.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from pydantic import BaseModel

from assay.errors import short_text

LARGEST = 1e100
"""Largest figure. Sums, products and squares of such figures are finite."""

_INFINITE = ("values", "gradients", "gradient_probe", "extra", "proof", "layers")
"""Fields whose figures may be infinite: errors of a run with wrong values, and gradients of one that diverged."""
_UNBOUNDED = ("perplexity", "val_perplexity")
"""Fields that are exponentials."""
_COUNTS = ("steps", "tokens", "parameters", "tokens_per_second")
"""Fields of a result that are never negative."""


def parse_json(text: bytes | str) -> Any:
    """Parse JSON. Raises `ValueError` also for NaN and infinity, which JSON does not have."""
    return json.loads(text, parse_constant=_refused)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no figure")


def check_possible(record: BaseModel) -> None:
    """Raise `ValueError` with the name of the first figure of a record that cannot be."""
    for name, value in _impossible(record, ""):
        raise ValueError(f"its figure {name} is {short_text(value)}, which cannot be")


def _impossible(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Yield each figure that cannot be, with its name."""
    last = name.rpartition(".")[2]
    if last in _INFINITE or isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        most = inf if last in _UNBOUNDED else LARGEST
        if not abs(value) < most or (last in _COUNTS and value < 0):
            yield name, value
        return
    for key, one in _parts(value):
        yield from _impossible(one, f"{name}.{key}" if name else str(key))


def _parts(value: object) -> Iterable[tuple[object, object]]:
    """Return the parts of a nested value with their names; curves have many figures, so whole ones are none."""
    if isinstance(value, BaseModel):
        return [*vars(value).items(), *(value.model_extra or {}).items()]
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, Sequence):
        figures = all(isinstance(one, float) for one in value)
        return [] if figures and all(abs(one) < LARGEST for one in value) else enumerate(value)
    return []
