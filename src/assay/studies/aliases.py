"""Aliases: effects that a fraction of a two-level factorial cannot tell apart (Box, Hunter & Hunter 2005, chapter 6).

A design of 2^b rows has b basic factors, and every further factor is at the level that the product of some basic ones
gives. A set of factors is a bit mask, and the product of two sets is their symmetric difference. The products that are
the same in every row, the defining words, make a group. Two effects are aliases if their product is in it: one estimate
is their sum.
"""

from collections.abc import Iterable, Sequence
from functools import cache, reduce
from itertools import combinations, islice
from operator import xor

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
