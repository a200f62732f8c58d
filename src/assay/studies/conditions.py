"""Combinations of settings that a study leaves out: values of some keys, or conditions on them.

A condition is an order sign and a number, such as ``">= 8"``. All entries of one mapping must hold for a row to be left
out. A row that does not set a key has the value of the base's configuration, such as that of an override.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import WithJsonSchema

from assay.errors import short_text
from assay.studies.factors import WRITTEN, text

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"(<=|>=|<|>)\s*(\S+)")

Excluded = tuple[dict[str, Annotated[str, WithJsonSchema(WRITTEN, "validation")]], ...]
"""Combinations, each with a value or a condition by key."""


class _Condition(NamedTuple):
    holds: Callable[[float, float], bool]
    limit: float


def read_excluded(written: Any) -> Excluded:
    """Return the combinations as a file writes them. Raises `ValueError` with one sentence for a wrong one."""
    if not isinstance(written, list | tuple) or not all(isinstance(one, Mapping) and one for one in written):
        raise ValueError("it should be a list of mappings, each of factors and one level or condition of theirs")
    found = tuple({str(key): text(level) for key, level in one.items()} for one in written)
    for one in found:
        for key, level in one.items():
            _condition(key, level)
    return found


def check_excluded(excluded: Excluded, values: Mapping[str, Collection[str]]) -> None:
    """Raise `ValueError` for a key that no row sets, and for a value or a condition that none can have.

    `values` has the values of each key; it has none where others may be drawn, or where the base is not known yet.
    """
    for one in excluded:
        for key, level in one.items():
            if key not in values:
                raise ValueError(f"exclude names {key}, which is no factor or override; there are {', '.join(values)}")
            condition, known = _condition(key, level), ", ".join(values[key])
            if not values[key]:
                continue
            if condition is None and level not in values[key]:
                raise ValueError(f"exclude names {key}={level}, which is no level of it; there are {known}")
            if condition is not None and all(_number(value) is None for value in values[key]):
                raise ValueError(f"exclude compares {key} with a number, and none of its levels is one: {known}")


def keys_of(excluded: Excluded) -> tuple[str, ...]:
    """Return the keys that the combinations name."""
    return tuple(dict.fromkeys(key for one in excluded for key in one))


def is_excluded(values: Mapping[str, str], excluded: Excluded) -> bool:
    """Return True if a row with these values is one of the combinations to leave out."""
    return any(all(_meets(values, key, level) for key, level in one.items()) for one in excluded)


def _meets(values: Mapping[str, str], key: str, level: str) -> bool:
    condition, value = _condition(key, level), values.get(key)
    if condition is None or value is None:
        return value == level
    number = _number(value)
    return number is not None and condition.holds(number, condition.limit)


def _condition(key: str, level: str) -> _Condition | None:
    """Return a condition; None for a plain value. Raises `ValueError` for a sign without a number."""
    if not level.startswith(("<", ">", "=", "!")):
        return None
    match = _FORM.fullmatch(level.strip())
    limit = _number(match[2]) if match else None
    if match is None or limit is None:
        raise ValueError(f'{key}: {short_text(level)} is no condition; write <, <=, > or >= and a number, as ">= 8"')
    return _Condition(_SIGNS[match[1]], limit)


def _number(value: str) -> float | None:
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
