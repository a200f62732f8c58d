"""Random search: combinations of settings drawn at random from ranges and lists, against a control.

Of several settings often only one or two matter, and nobody knows which. A grid of nine rows tries three values of each
of two settings; nine random rows try nine values of each (Bergstra and Bengio 2012). Draws depend on `draw_seed` alone,
so a study resumes with the same rows, and a larger number of `trials` begins with the same ones.
"""

import math
import random
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from assay.config.base import Setting
from assay.studies.base import Study
from assay.studies.factors import WRITTEN, Factor, one_line, text
from assay.studies.varied import Excluded, check_excluded, is_excluded, keys_of, read_excluded

Number = Annotated[float, Field(strict=False)]


class Range(Setting):
    """Numbers between two ends, drawn evenly on a linear or a logarithmic scale."""

    low: Number
    high: Number
    scale: Literal["log", "linear"] = "log"
    integer: bool = False

    @field_validator("low", "high", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("it should be a number, and YAML reads yes, no, true and false as truth values")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> "Range":
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low={self.low:g} has no logarithm; give a positive low, or scale: linear")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"the range from {self.low:g} to {self.high:g} is too wide")
        if self.integer and math.ceil(self.low) > math.floor(self.high):
            raise ValueError(f"there is no whole number from {self.low:g} to {self.high:g}")
        return self

    def draw(self, chance: random.Random) -> str:
        """Return a number as the text of an override, with three significant digits if these lie within the range."""
        at = chance.random()
        if self.scale == "log":
            value = math.exp(math.log(self.low) + at * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + at * (self.high - self.low)
        if self.integer:
            return str(min(max(round(value), math.ceil(self.low)), math.floor(self.high)))
        short = float(f"{value:.3g}")
        return f"{short:.3g}" if self.low <= short <= self.high else repr(min(max(value, self.low), self.high))


class RandomSearch(Study):
    """The base, and rows whose settings are drawn at random."""

    kind: ClassVar[str] = "random"
    by_chance: ClassVar[bool] = True
    example: ClassVar[Mapping[str, str]] = {
        "space": "\n  training.learning_rate: {low: 1e-4, high: 1e-2}\n  training.batch_size: [8, 16, 32]",
        "trials": "8",
    }

    space: dict[str, Range | tuple[Annotated[str, WithJsonSchema(WRITTEN, "validation")], ...]] = Field(min_length=1)
    """Per configuration key, a list of values, or a range with low, high, scale (log or linear) and integer."""
    trials: int = Field(ge=1, le=1000)
    """Number of rows besides the control."""
    draw_seed: int = 0
    """Seed of the draws."""
    exclude: Excluded = ()
    """Combinations that are drawn again: a value of some keys, or conditions such as ">= 8"."""

    @field_validator("trials", "draw_seed", mode="before")
    @classmethod
    def _whole_numbers(cls, value: Any) -> Any:
        return cls._a_number(value)

    @field_validator("space", mode="before")
    @classmethod
    def _read_space(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {str(key): _choices(str(key), one) for key, one in value.items()}

    @field_validator("exclude", mode="before")
    @classmethod
    def _read_exclude(cls, value: Any) -> Any:
        return read_excluded(value)

    @model_validator(mode="after")
    def _exclude_what_is_there(self) -> "RandomSearch":
        values: dict[str, tuple[str, ...]] = dict.fromkeys(self.overridden(), ())
        for key, one in self.space.items():
            values[key] = () if isinstance(one, Range) else one
        check_excluded(self.exclude, values)
        return self

    def factors(self) -> tuple[Factor, ...]:
        """Return a factor for each key, with the values that were drawn; the control has the base's own."""
        rows = self._rows()
        return tuple(Factor(key, (BASE, *dict.fromkeys(row[key] for row in rows)), {BASE: {}}) for key in self.space)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the base, then the rows in the order of the draws."""
        yield dict.fromkeys(self.space, BASE)
        yield from self._rows()

    def notes(self) -> tuple[str, ...]:
        """Return a sentence if the space has fewer combinations than trials."""
        count = len(self._rows())
        return () if count == self.trials else (f"Only {count} different rows were found for {self.trials} trials.",)

    def _rows(self) -> list[dict[str, str]]:
        """Return the drawn rows. A row that was drawn before is drawn again, as long as there are others."""
        chance, found = random.Random(self.draw_seed), list[dict[str, str]]()
        for _ in range(_TRIES * self.trials):
            row = {
                key: one.draw(chance) if isinstance(one, Range) else chance.choice(one)
                for key, one in self.space.items()
            }
            if row not in found and not is_excluded(self.complete(row, keys_of(self.exclude)), self.exclude):
                found.append(row)
            if len(found) == self.trials:
                break
        return found


BASE = "base"
"""Level of the control, which changes nothing."""

_TRIES = 100
"""Draws for each row before a space counts as exhausted."""


def _choices(key: str, written: Any) -> Any:
    """Return the values of a list as texts; a mapping is left for `Range`."""
    if isinstance(written, Mapping):
        return dict(written)
    if isinstance(written, list | tuple) and written:
        return tuple(one_line(text(one)) for one in written)
    raise ValueError(f"{key} needs a list of values, or a range such as {{low: 1e-4, high: 1e-2}}")
