"""Successive halving: many settings are trained for a short time, and the best of them for longer.

Most settings of a wide search are bad, and a short training shows it. All rows run for the first number of steps. The
best part of them, by validation loss, runs for the second number, and so on (Jamieson and Talwalkar 2016). Each rung
trains anew from the first step, because a learning-rate schedule depends on the number of steps. A setting that is slow
at first and best in the end is lost: rungs that differ by a small factor lose fewer.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from assay.records.study import Halving
from assay.studies.factors import Factor
from assay.studies.kinds.random import BASE, RandomSearch

_STEPS = "training.steps"


class SuccessiveHalving(RandomSearch):
    """Rows whose settings are drawn at random; the best of each rung go on to more steps. It measures no times."""

    kind: ClassVar[str] = "successive_halving"
    losses_only: ClassVar[bool] = True
    example: ClassVar[Mapping[str, str]] = {**RandomSearch.example, "trials": "9", "steps": "[20, 60, 180]"}

    steps: tuple[int, ...] = Field(min_length=2, max_length=20)
    """Training steps of each rung, the fewest first. The control has the most."""
    reduction: int = Field(default=3, ge=2)
    """One of so many rows goes on to the next rung."""

    @field_validator("steps", "reduction", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any) -> Any:
        for one in value if isinstance(value, list | tuple) else (value,):
            cls._a_number(one)
        return value

    @model_validator(mode="after")
    def _longer_and_longer(self) -> "SuccessiveHalving":
        if self.steps[0] < 1 or any(after <= before for before, after in zip(self.steps, self.steps[1:], strict=False)):
            raise ValueError("steps must be positive and ascend, such as [20, 60, 180]")
        if _STEPS in self.space:
            raise ValueError(f"space has {_STEPS}, which the rungs decide; leave it out")
        return self

    def overridden(self) -> tuple[str, ...]:
        """Return the keys that the overrides of the base set, without the number of steps, which the rungs decide."""
        return tuple(key for key in super().overridden() if key != _STEPS)

    def factors(self) -> tuple[Factor, ...]:
        """Return the factors of the search, and the number of steps."""
        longest, *others = map(str, reversed(self.steps))
        return (*super().factors(), Factor(_STEPS, (longest, *others)))

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the base at the most steps, then the rows rung by rung."""
        yield dict.fromkeys(self.space, BASE) | {_STEPS: str(self.steps[-1])}
        for steps in self.steps:
            yield from (row | {_STEPS: str(steps)} for row in self._rows())

    def halving(self) -> Halving:
        """Return the rows of each rung, and how many of them run."""
        rows = self._rows()
        rungs = (tuple(self.label(row | {_STEPS: str(steps)}) for row in rows) for steps in self.steps)
        kept = (max(1, len(rows) // self.reduction**number) for number in range(len(self.steps)))
        return Halving(rungs=tuple(rungs), kept=tuple(kept))

    def notes(self) -> tuple[str, ...]:
        """Return sentences on the size of each rung."""
        first, *others = zip(self.halving().kept, self.steps, strict=True)
        then = ", ".join(f"the best {count} for {steps}" for count, steps in others)
        return (*super().notes(), f"{first[0]} rows train for {first[1]} steps, then {then}.")
