"""Fractions of two-level designs, against columns that are multiplied out, and against published designs."""

from itertools import combinations, product
from math import prod

import pytest

from assay.studies.kinds.fractional import aliases, best_generators, defining_words, resolution

# Box, Hunter & Hunter (2005), table 6.22: highest resolution of 2^(k−p) designs by (factors, basic factors).
PUBLISHED = {
    (3, 2): 3, (4, 3): 4, (5, 4): 5, (5, 3): 3, (6, 5): 6, (6, 4): 4, (6, 3): 3, (7, 6): 7, (7, 5): 4, (7, 4): 4,
    (7, 3): 3, (8, 6): 5, (8, 5): 4, (8, 4): 4, (9, 5): 4, (9, 4): 3, (15, 4): 3,
}  # fmt: skip


@pytest.mark.parametrize(("shape", "highest"), PUBLISHED.items())
def test_the_resolution_is_the_highest_that_is_published(shape: tuple[int, int], highest: int) -> None:
    factors, basic = shape
    assert resolution(defining_words(best_generators(factors, basic), basic)) == highest


@pytest.mark.parametrize("shape", [(4, 3), (5, 3), (6, 4), (7, 4)])
def test_aliases_are_the_effects_whose_columns_are_equal_up_to_sign(shape: tuple[int, int]) -> None:
    factors, basic = shape
    generators = best_generators(factors, basic)
    words = defining_words(generators, basic)
    rows = [
        (*signs, *(prod(signs[bit] for bit in range(basic) if word >> bit & 1) for word in generators))
        for signs in product((-1, 1), repeat=basic)
    ]
    effects = [sum(1 << one for one in some) for size in (1, 2) for some in combinations(range(factors), size)]
    columns = {
        effect: tuple(prod(row[bit] for bit in range(factors) if effect >> bit & 1) for row in rows)
        for effect in effects
    }
    for effect in effects:
        other = tuple(-one for one in columns[effect])
        same = {one for one in effects if one != effect and columns[one] in (columns[effect], other)}
        assert set(aliases(effect, words)) == same


def test_a_full_design_has_no_aliases() -> None:
    assert resolution(defining_words(best_generators(3, 3), 3)) is None


def test_too_many_factors_are_a_sentence() -> None:
    with pytest.raises(ValueError, match="4 rows are too few for 4 factors; there is room for 3"):
        best_generators(4, 2)
