"""Studies that vary the factors of a mapping `vary`, without the combinations that `exclude` names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, InstanceOf, field_validator, model_validator

from assay.studies.base import Study
from assay.studies.conditions import check_excluded, is_excluded, read_excluded
from assay.studies.factors import Factor, factor


class Varied(Study):
    """A study whose file lists the factors and their levels. The first level of each factor is the control's."""

    example: ClassVar[Mapping[str, str]] = {
        "vary": "\n  training.learning_rate: [1e-3, 3e-4]\n  optimizations: [none, lion]"
    }

    vary: dict[str, InstanceOf[Factor]] = Field(min_length=1)
    """Levels of each factor, by a configuration key, by `optimizations`, or by a name if all its levels are named."""
    exclude: tuple[dict[str, str], ...] = ()
    """Combinations to leave out: levels of some factors, or conditions such as ">= 8", at any levels of the others."""

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
        for one in self.exclude:
            if is_excluded(self._values(self.control()), (one,)):
                raise ValueError(f"exclude leaves out the control, which has {_written(one)}")
        return self

    def factors(self) -> tuple[Factor, ...]:
        """Return the factors in the order of the file."""
        return tuple(self.vary.values())

    def allowed(self, combinations: Iterable[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
        """Yield the combinations that `exclude` does not name."""
        for levels in combinations:
            if not is_excluded(self._values(levels), self.exclude):
                yield levels

    def _values(self, levels: Mapping[str, str]) -> dict[str, str]:
        """Return the level of each factor, and the value of each key that named levels change."""
        changed = {key: value for name, level in levels.items() for key, value in self.vary[name].at(level).items()}
        return {**changed, **levels}

    def _settings(self) -> dict[str, tuple[str, ...]]:
        """Return the levels of each factor, and the values of each key that named levels change."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.vary.values():
            for level in one.levels:
                for key, value in one.at(level).items():
                    found[key] = (*found.get(key, ()), value)
        return {key: one.levels for key, one in self.vary.items()} | {
            key: values for key, values in found.items() if key not in self.vary
        }

    def control(self) -> dict[str, str]:
        """Return the first level of every factor."""
        return {key: one.levels[0] for key, one in self.vary.items() if one.levels}


def _written(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {level}" if level[:1] in "<>" else f"{key}={level}" for key, level in levels.items())
