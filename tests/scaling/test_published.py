"""Published optima against the tables of their papers."""

import pytest

from assay.scaling.frontier import for_parameters, for_tokens
from assay.scaling.published import FRONTIERS

TABLES = {
    "Hoffmann 1": {1e9: 20.2e9, 10e9: 205.1e9, 67e9: 1.5e12, 175e9: 3.7e12, 1e12: 21.2e12},
    "Hoffmann 2": {1e9: 20.0e9, 10e9: 219.5e9, 67e9: 1.7e12, 175e9: 4.3e12, 1e12: 26.5e12},
    "Hoffmann 3": {1e9: 27.1e9, 10e9: 410.1e9, 67e9: 4.1e12, 175e9: 12.0e12, 1e12: 94.1e12},
}
"""Tokens by parameters in Hoffmann et al. 2022, tables 3 and A3."""


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_three_approaches(name: str) -> None:
    for parameters, tokens in TABLES[name].items():
        assert for_parameters(FRONTIERS[name], parameters).tokens == pytest.approx(tokens, rel=0.06)


@pytest.mark.parametrize("name", FRONTIERS)
@pytest.mark.parametrize("amount", [1e3, 1e20])
def test_the_smallest_and_the_largest_amounts_have_an_optimum(name: str, amount: float) -> None:
    law = FRONTIERS[name]
    assert for_parameters(law, amount).parameters == pytest.approx(amount, rel=1e-6)
    assert for_tokens(law, amount).tokens == pytest.approx(amount, rel=1e-6)


def test_the_constants_of_approach_3_have_more_tokens_than_its_table() -> None:
    ratios = {
        name: [for_parameters(FRONTIERS[name], size).tokens / tokens for size, tokens in TABLES["Hoffmann 3"].items()]
        for name in ("Hoffmann 3, unrounded", "Hoffmann 3, rounded")
    }
    assert all(1.05 < ratio < 1.16 for ratio in ratios["Hoffmann 3, unrounded"])
    assert all(ratio > 1.6 for ratio in ratios["Hoffmann 3, rounded"])


def test_kaplans_optimum_depends_on_which_compute_counts() -> None:
    found = {name: law.at(1e21).parameters for name, law in FRONTIERS.items()}
    assert found["Kaplan, C_min = C/2"] == pytest.approx(4.68e9, rel=0.005)
    assert found["Kaplan, C_min = C"] == pytest.approx(7.77e9, rel=0.005)
    assert found["Hoffmann 1"] == pytest.approx(2.86e9, rel=0.01)


@pytest.mark.parametrize("name", FRONTIERS)
def test_an_optimum_is_the_same_from_every_side(name: str) -> None:
    law = FRONTIERS[name]
    by_flops = law.at(3e22)
    assert 6 * by_flops.parameters * by_flops.tokens == pytest.approx(3e22)
    assert for_parameters(law, by_flops.parameters).flops == pytest.approx(3e22, rel=1e-6)
    assert for_tokens(law, by_flops.tokens).flops == pytest.approx(3e22, rel=1e-6)
    assert law.source
