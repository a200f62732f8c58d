"""Studies that vary the factors of a mapping `vary`, without the combinations that `exclude` names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, InstanceOf, field_validator, model_validator

from assay.studies.base import Study
from assay.studies.factors import Factor, factor, text


class Varied(Study):
    """A study whose file lists the factors and their levels. The first level of each factor is the control's."""

    example: ClassVar[Mapping[str, str]] = {
        "vary": "\n  training.learning_rate: [1e-3, 3e-4]\n  optimizations: [none, lion]"
    }

    vary: dict[str, InstanceOf[Factor]] = Field(min_length=1)
    """Levels of each factor, by a configuration key, by `optimizations`, or by a name if all its levels are named."""
    exclude: tuple[dict[str, str], ...] = ()
    """Combinations to leave out: a level of some of the factors, at any levels of the others."""

    @field_validator("vary", mode="before")
    @classmethod
    def _read_factors(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {str(key): factor(str(key), levels) for key, levels in value.items()}

    @field_validator("exclude", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
            raise ValueError("it should be a list of mappings, each of factors and one level of theirs")
        return tuple({str(key): text(level) for key, level in one.items()} for one in value)

    @model_validator(mode="after")
    def _exclude_what_is_there(self) -> "Varied":
        for one in self.exclude:
            for key, level in one.items():
                if key not in self.vary:
                    raise ValueError(f"exclude names {key}, which is no factor; there are {', '.join(self.vary)}")
                if level not in self.vary[key].levels:
                    known = ", ".join(self.vary[key].levels)
                    raise ValueError(f"exclude names {key}={level}, which is no level of it; there are {known}")
            if all(self.vary[key].levels[0] == level for key, level in one.items()):
                raise ValueError(f"exclude leaves out the control, which has {_written(one)}")
        return self

    def factors(self) -> tuple[Factor, ...]:
        """Return the factors in the order of the file."""
        return tuple(self.vary.values())

    def allowed(self, combinations: Iterable[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
        """Yield the combinations that `exclude` does not name."""
        for levels in combinations:
            if not any(all(levels[key] == level for key, level in one.items()) for one in self.exclude):
                yield levels

    def control(self) -> dict[str, str]:
        """Return the first level of every factor."""
        return {key: one.levels[0] for key, one in self.vary.items() if one.levels}


def _written(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={level}" for key, level in levels.items())
