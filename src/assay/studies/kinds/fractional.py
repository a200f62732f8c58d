"""A fraction of a two-level factorial: few rows for many factors, at the price of effects that cannot be told apart.

The first factors make a full factorial of `size` rows. Each further factor follows a product of them, chosen so that
main effects are mixed up with interactions of as many factors as possible (`studies.aliases`).
"""

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import ClassVar

from pydantic import model_validator

from assay.studies.aliases import aliases, best_generators, defining_words, resolution
from assay.studies.varied import Varied

_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII")


class Fractional(Varied):
    """Rows of a two-level design; the control is the row with all first levels."""

    kind: ClassVar[str] = "fractional"
    example: ClassVar[Mapping[str, str]] = {
        "vary": "\n  model.n_layer: [4, 6]\n  training.batch_size: [12, 24]\n  optimizations: [none, lion]",
        "size": "4",
    }

    size: int
    """Number of rows: a power of two, less than or equal to two to the number of factors."""

    @model_validator(mode="after")
    def _two_levels(self) -> "Fractional":
        for one in self.factors():
            if len(one.levels) != 2:
                raise ValueError(
                    f"a fractional design has two levels of each factor, and {one.key} has {len(one.levels)}"
                )
        if self.exclude:
            raise ValueError("a fractional design has no exclude: without a row its effects cannot be computed")
        if self.size < 2 or self.size & (self.size - 1) or self._basic > len(self.vary):
            largest = 1 << len(self.vary)
            raise ValueError(f"size={self.size} is not possible; give a power of two from 2 to {largest}")
        best_generators(len(self.vary), self._basic)
        return self

    @property
    def _basic(self) -> int:
        return self.size.bit_length() - 1

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the rows; the last basic factor varies fastest."""
        generators = best_generators(len(self.vary), self._basic)
        for basic in product((0, 1), repeat=self._basic):
            # The product of an even number of factors at the first level (−1) is +1, so that parity is turned round:
            # in the first row every factor, also a further one, is at its first level.
            further = (sum(level for bit, level in enumerate(basic) if word >> bit & 1) % 2 for word in generators)
            levels = (*basic, *further)
            yield {one.key: one.levels[level] for one, level in zip(self.factors(), levels, strict=True)}

    def notes(self) -> tuple[str, ...]:
        """Return the resolution, and which main effects and pairs of factors cannot be told apart."""
        words = defining_words(best_generators(len(self.vary), self._basic), self._basic)
        length = resolution(words)
        if length is None:
            return ("Every combination of levels is a row: all effects can be told apart.",)
        names = tuple(self.vary)
        count = len(names)
        singles, pairs = (
            [sum(1 << one for one in chosen) for chosen in combinations(range(count), size)] for size in (1, 2)
        )
        told, lines = set(), []
        for effect in (*singles, *pairs):
            same = [one for one in aliases(effect, words) if one not in told]
            if same and effect not in told:
                told |= {effect, *same}
                lines.append(f"{_name(effect, names)} = {' = '.join(_name(one, names) for one in same)}")
        head = f"{self.size} of {1 << len(names)} combinations, resolution {_ROMAN[min(length, 8)]}."
        return (head, *(f"Cannot be told apart: {line}." for line in lines))


def _name(effect: int, names: tuple[str, ...]) -> str:
    return " × ".join(name for index, name in enumerate(names) if effect >> index & 1)
