"""A full factorial: every combination of the levels of all factors, against the combination of the first levels."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

from pydantic import Field, field_validator

from assay.studies.base import Factor, Study


class Factorial(Study):
    """All combinations of levels. The first level of each factor is that of the control."""

    kind: ClassVar[str] = "factorial"

    vary: dict[str, tuple[str, ...]] = Field(min_length=1)
    """Levels of each factor, by a configuration key or `optimizations`, whose level ``none`` turns none on."""

    @field_validator("vary", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        """Take numbers as the text of an override."""
        if not isinstance(value, dict):
            return value
        return {
            key: tuple(str(level) for level in levels) if isinstance(levels, list | tuple) else levels
            for key, levels in value.items()
        }

    def factors(self) -> tuple[Factor, ...]:
        """Return the factors in the order of the file."""
        return tuple(Factor(key, levels) for key, levels in self.vary.items())

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield every combination. The last factor varies fastest, and the first levels come first."""
        for levels in product(*self.vary.values()):
            yield dict(zip(self.vary, levels, strict=True))
