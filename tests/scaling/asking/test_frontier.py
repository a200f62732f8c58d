"""Intervals of frontiers against bootstraps, and their published exponents."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.scaling.asking.frontier import Minimum, Tilted, exponent
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.points import read_points
from assay.scaling.published import BESIROGLU, FRONTIERS


@pytest.mark.parametrize(
    ("name", "power"),
    [
        ("Hoffmann 1", 0.50),
        ("Hoffmann 2", 0.49),
        ("Hoffmann 3", 0.46),
        ("Hoffmann 3, unrounded", 0.457),
        ("Besiroglu", 0.513),
        ("Kaplan, C_min = C", 0.73),
    ],
)
def test_exponents_are_the_published_ones(name: str, power: float) -> None:
    assert exponent(FRONTIERS[name]) == pytest.approx(power, abs=0.005)


def test_a_tilted_curve_has_its_exponent_and_agrees_at_one_compute() -> None:
    curve = Minimum(BESIROGLU)
    tilted = Tilted(curve, 0.6, 6e18)
    assert exponent(tilted) == pytest.approx(0.6)
    assert tilted.at(6e18).parameters == pytest.approx(curve.at(6e18).parameters)
    assert 6 * tilted.at(1e22).parameters * tilted.at(1e22).tokens == pytest.approx(1e22)


@pytest.mark.parametrize("name", ["Hoffmann 1", "Hoffmann 2", "Besiroglu"])
def test_intervals_contain_the_law_and_grow_with_compute(name: str) -> None:
    law = FRONTIERS[name]
    assert law.spread is not None
    widths = []
    for flops in (1e20, 1e22, 1e24):
        low, high = law.spread.interval(lambda curve, flops=flops: curve.at(flops).parameters)  # type: ignore[misc]
        assert low < law.at(flops).parameters < high
        widths.append(np.log(high / low))
    assert widths == sorted(widths)


def test_the_interval_of_the_published_errors_is_about_that_of_a_bootstrap(shared: Callable[[str], Path]) -> None:
    """The independent reference: the same law, fitted anew to drawn points of the paper's figure."""
    points = read_points(shared("chinchilla/hoffmann_figure4_extracted.csv")).without_highest(5)
    draws = bootstrap(fit(points), 100)
    spread = FRONTIERS["Besiroglu"].spread
    assert spread is not None
    for flops in (1e21, 1e23, 1e25):
        low, high = spread.interval(lambda curve, flops=flops: curve.at(flops).parameters)  # type: ignore[misc]
        ends = np.quantile([law.optimum(flops)[0] for law in draws], (0.1, 0.9))
        assert np.log(high / low) == pytest.approx(np.log(ends[1] / ends[0]), rel=0.35)
