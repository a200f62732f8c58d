"""The spread of the last losses against numpy's least squares."""

import random

import numpy as np
import pytest

from assay.store.spread import loss_spread


def reference(losses: list[float]) -> float:
    """The slow reference: a polynomial fit of degree one."""
    steps = np.arange(len(losses))
    residuals = np.array(losses) - np.polyval(np.polyfit(steps, losses, 1), steps)
    return float(np.sqrt(np.sum(residuals**2) / (len(losses) - 2)))


@pytest.mark.parametrize(("steps", "last"), [(10, 10), (57, 10), (100, 10), (230, 23), (2000, 200)])
def test_it_is_the_deviation_of_the_last_tenth_about_its_line(steps: int, last: int) -> None:
    chance = random.Random(steps)
    losses = [4 - step / steps + chance.gauss(0, 0.05) for step in range(steps)]
    assert loss_spread(losses) == pytest.approx(reference(losses[-last:]), rel=1e-9)


def test_a_straight_line_has_no_spread_and_a_zigzag_all_of_it() -> None:
    assert loss_spread([5 - 0.01 * step for step in range(40)]) == pytest.approx(0, abs=1e-12)
    zigzag = [2 + 0.1 * (-1) ** step for step in range(1000)]
    assert loss_spread(zigzag) == pytest.approx(0.1, rel=0.02)


def test_too_few_losses_and_infinite_ones_have_none() -> None:
    assert loss_spread([3.0] * 9) is None
    assert loss_spread([]) is None
    assert loss_spread([3.0] * 20 + [None]) is None
    assert loss_spread([3.0] * 20 + [float("inf")]) is None
    assert loss_spread([None] * 10 + [3.0] * 10) == 0
