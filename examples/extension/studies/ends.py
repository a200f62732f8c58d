"""A kind of study: the first and the last of several learning rates, and nothing between them."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from assay.studies.base import Factor, Study


class Ends(Study):
    """The two ends of a row of learning rates."""

    kind: ClassVar[str] = "ends"
    example: ClassVar[Mapping[str, str]] = {"rates": '["1e-3", "3e-4", "1e-4"]'}

    rates: tuple[str, ...]
    """Learning rates, as texts."""

    def factors(self) -> tuple[Factor, ...]:
        """Return the one factor with all its levels."""
        return (Factor("training.learning_rate", self.rates),)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the first rate, which is the control, and the last."""
        yield from ({"training.learning_rate": rate} for rate in (self.rates[0], self.rates[-1]))
