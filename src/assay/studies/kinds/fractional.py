"""A fraction of a two-level factorial: few rows for many factors, at the price of effects that cannot be told apart.

The first factors make a full factorial of `size` rows. Each further factor follows a product of them, chosen so that
main effects are mixed up with interactions of as many factors as possible.

Such effects are aliases (Box, Hunter & Hunter 2005, chapter 6). A design of 2^b rows has b basic factors, and every
further factor is at the level that the product of some basic ones gives. A set of factors is a bit mask, and the
product of two sets is their symmetric difference. The products that are the same in every row, the defining words, make
a group. Two effects are aliases if their product is in it: one estimate is their sum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import combinations, islice, product
from operator import xor
from typing import ClassVar

from pydantic import model_validator

from assay.studies.varied import Varied

_MOST_CHOICES = 50_000
"""Most sets of generators that are compared; larger designs take the best among the first."""


def defining_words(generators: Sequence[int], basic: int) -> tuple[int, ...]:
    """Return every defining word but the empty one.

    `generators` has the product of basic factors, as a mask of their indices, for factor `basic`, `basic` + 1, ….
    """
    own = [word | 1 << (basic + index) for index, word in enumerate(generators)]
    sets = (chosen for size in range(1, len(own) + 1) for chosen in combinations(own, size))
    return tuple(reduce(xor, chosen) for chosen in sets)


@cache
def best_generators(factors: int, basic: int) -> tuple[int, ...]:
    """Return generators with the fewest short defining words (minimum aberration; Fries & Hunter 1980).

    Raises `ValueError` if the basic factors have too few products.
    """
    products = [mask for mask in range(1, 1 << basic) if mask.bit_count() > 1]
    products.sort(key=lambda mask: (-mask.bit_count(), mask))
    added = factors - basic
    if added > len(products):
        raise ValueError(f"{1 << basic} rows are too few for {factors} factors; there is room for {(1 << basic) - 1}")
    choices = islice(combinations(products, added), _MOST_CHOICES)
    return min(choices, key=lambda chosen: _lengths(defining_words(chosen, basic), factors))


def resolution(words: Iterable[int]) -> int | None:
    """Return the length of the shortest defining word; None if there is none, as in a full factorial."""
    return min((word.bit_count() for word in words), default=None)


def aliases(effect: int, words: Iterable[int], largest: int = 2) -> tuple[int, ...]:
    """Return the effects of at most `largest` factors that cannot be told from `effect`, the simplest first."""
    found = (effect ^ word for word in words)
    return tuple(
        sorted((one for one in found if 0 < one.bit_count() <= largest), key=lambda one: (one.bit_count(), one))
    )


def _lengths(words: Iterable[int], factors: int) -> tuple[int, ...]:
    """Return how many words have each length, the shortest first."""
    lengths = [word.bit_count() for word in words]
    return tuple(lengths.count(length) for length in range(1, factors + 1))


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
