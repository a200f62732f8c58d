"""Studies that vary the factors of a mapping `vary`, without the combinations that `exclude` names.

A combination to leave out has values of some keys, or conditions on them. A condition is an order sign and a number,
such as ``">= 8"``. All entries of one mapping must hold for a row to be left out. A row that does not set a key has the
value of the base's configuration, such as that of an override.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field, InstanceOf, WithJsonSchema, field_validator, model_validator

from assay.config.run import Run
from assay.errors import UsageError, first_names, short_text
from assay.studies.base import Study
from assay.studies.factors import WRITTEN, WRITTEN_LEVELS, Factor, factor, has_role, text

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


_MOST = 6
"""Most combinations in one sentence."""


class Varied(Study):
    """A study whose file lists the factors and their levels. The first level of each factor is the control's."""

    example: ClassVar[Mapping[str, str]] = {
        "vary": "\n  training.learning_rate: [1e-3, 3e-4]\n  optimizations: [none, lion]"
    }

    vary: dict[str, Annotated[InstanceOf[Factor], WithJsonSchema(WRITTEN_LEVELS)]] = Field(min_length=1)
    """Levels of each factor, by a configuration key, by `optimizations`, or by a name if all its levels are named."""
    exclude: Excluded = ()
    """Combinations to leave out: levels of some factors, or conditions such as ">= 8", at any levels of the others."""

    @model_validator(mode="before")
    @classmethod
    def _with_context(cls, values: Any) -> Any:
        """Read the roles of factors as `context`."""
        vary = values.get("vary") if isinstance(values, Mapping) else None
        if not isinstance(vary, Mapping):
            return values
        context = [str(key) for key, written in vary.items() if has_role(str(key), written)]
        return {**values, "context": (*values.get("context", ()), *context)} if context else values

    @field_validator("vary", mode="before")
    @classmethod
    def _read_factors(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {str(key): factor(str(key), levels) for key, levels in value.items()}

    @field_validator("exclude", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        return read_excluded(value)

    @model_validator(mode="after")
    def _exclude_what_is_there(self) -> "Varied":
        check_excluded(self.exclude, self._settings())
        self._check_control()
        return self

    def _check_control(self) -> None:
        """Raise `ValueError` if the control is left out."""
        values = self._values(self.control())
        for one in self.exclude:
            if is_excluded(values, (one,)):
                raise ValueError(f"exclude leaves out the control, which has {_written(one)}")

    def on(self, base: Run) -> Self:
        """Return the study with the configuration of its base. Raises `UsageError` if the control is left out."""
        known = super().on(base)
        try:
            known._check_control()
        except ValueError as error:
            raise UsageError(str(error)) from error
        return known

    def idle(self) -> tuple[str, ...]:
        """Return a sentence on combinations to leave out that no row has."""
        free = self.model_copy(update={"exclude": ()})
        rows = [self._values(levels) for levels in free.combinations()] if self.exclude else []
        unmet = [_written(one) for one in self.exclude if not any(is_excluded(row, (one,)) for row in rows)]
        return (f"No row has what exclude leaves out: {first_names(unmet, _MOST, '; ')}.",) if unmet else ()

    def factors(self) -> tuple[Factor, ...]:
        """Return the factors in the order of the file."""
        return tuple(self.vary.values())

    def allowed(self, combinations: Iterable[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
        """Yield the combinations that `exclude` does not name."""
        for levels in combinations:
            if not is_excluded(self._values(levels), self.exclude):
                yield levels

    def _values(self, levels: Mapping[str, str]) -> dict[str, str]:
        """Return the level of each factor, the values that levels change, and the base's own for other conditions."""
        changed = {key: value for name, level in levels.items() for key, value in self.vary[name].at(level).items()}
        return self.complete({**changed, **levels}, keys_of(self.exclude))

    def _settings(self) -> dict[str, tuple[str, ...]]:
        """Return the levels of each factor, and the values of the keys that named levels or overrides change.

        The base's own value is among these. Where that is not known yet, there are none.
        """
        levels = {key: one.levels for key, one in self.vary.items()}
        changed = [pair for one in self.vary.values() for level in one.levels for pair in one.at(level).items()]
        others = dict.fromkeys(key for key in (*dict(changed), *self.overridden()) if key not in levels)
        own = self.complete({}, [key for key in others if key in keys_of(self.exclude)])
        known = {key: [value for name, value in changed if name == key] for key in others}
        unknown = {key for key in others if key not in own and self.start_from is not None}
        return levels | {
            key: () if key in unknown else (*known[key], *([own[key]] if key in own else [])) for key in others
        }

    def control(self) -> dict[str, str]:
        """Return the first level of every factor."""
        return {key: one.levels[0] for key, one in self.vary.items() if one.levels}


def _written(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {level}" if level[:1] in "<>" else f"{key}={level}" for key, level in levels.items())
