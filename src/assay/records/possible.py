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
from assay.records.timing import Quartiles

LARGEST = 1e100
"""Largest figure. Sums, products and squares of such figures are finite."""

_INFINITE = ("values", "gradients", "gradient_probe", "extra", "proof", "layers")
"""Fields whose figures may be infinite: errors of a run with wrong values, and gradients of one that diverged."""
_UNBOUNDED = ("perplexity", "val_perplexity")
"""Fields that are exponentials."""
_COUNTS = (
    *("steps", "tokens", "parameters", "documents", "skipped_steps", "tokens_per_second", "cores"),
    *("lower", "median", "upper", "epoch_seconds", "first_step_seconds", "median_step_seconds", "loss_spread"),
)
"""Fields that are never negative."""
_AMOUNTS = ("_bytes", "_targets", "perplexity", "standard_error")
"""Ends of the names of further fields that are never negative."""
_SHARES = ("data_wait_share", "idle_share", "bubble_share")
"""Fields that are a share of a whole."""
_MOST_SHARE = 1.1
"""Larger shares cannot be; the clocks of a host and of its device may differ a little."""
_MOST_BYTES = 2**63
"""More bytes than a measured memory has; a predicted one may have them."""


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
        lowest, most = _limits(name, last)
        if not lowest <= value < most:
            yield name, value
        return
    if isinstance(value, Quartiles) and not value.lower <= value.median <= value.upper:
        yield f"{name}.median", value.median
    for key, one in _parts(value):
        yield from _impossible(one, f"{name}.{key}" if name else str(key))


def _limits(name: str, last: str) -> tuple[float, float]:
    """Return the least figure that a field can have, and one that is too large."""
    if last in _SHARES:
        return 0.0, _MOST_SHARE
    most = inf if last in _UNBOUNDED else _MOST_BYTES if "memory." in name else LARGEST
    return (0.0 if last in _COUNTS or last.endswith(_AMOUNTS) else -LARGEST), most


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
