"""Intervals beyond the fitted compute: they grow where a law bends within its points, and little where it is true."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.scaling.extrapolation import Extrapolation, extrapolation, widened
from assay.scaling.fitted import FittedLaw, with_held_out
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.laws import HOFFMANN, Law
from assay.scaling.points import Points

TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)
CHINCHILLA = "chinchilla/hoffmann_figure4_extracted.csv"


def made(seed: int, bend: float = 0.0, count: int = 80) -> Points:
    """Points whose log loss leaves the law by `bend` times the square of the powers of ten above 1e19 FLOPs."""
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    above = np.maximum(0, np.log10(6 * sizes * tokens / 1e19))
    noise = 0.005 * chance.standard_normal(count)
    return Points(sizes, tokens, TRUE.loss(sizes, tokens) * np.exp(noise + bend * above**2))


def test_the_half_width_is_zero_within_and_grows_beyond() -> None:
    beyond = Extrapolation(growth=0.03, scatter=0.04, fitted_flops=1e20, origins=4)
    widths = beyond.half_widths(1e20 * np.exp([-1.0, 0.0, 1.0, 10.0]))
    assert widths == pytest.approx([0.0, 0.0, 0.05, np.hypot(0.04, 0.3)])


def test_a_law_that_bends_within_its_points_has_wider_intervals_and_covers() -> None:
    straight, bent = (extrapolation(fit(made(0, bend).where(made(0).flops < 3e20))) for bend in (0.0, 0.02))
    assert straight is not None
    assert bent is not None
    assert bent.growth > 2 * straight.growth
    points = made(0, 0.02, 160)
    found = fit(points.where(points.flops < 1e21))
    law = FittedLaw(found, tuple(bootstrap(found, 100)), 0, extrapolation=extrapolation(found))
    held_out = with_held_out(law, points, 1e21).held_out
    assert held_out is not None
    assert held_out.covered >= 0.9 > held_out.covered_if_law_is_true


def test_too_few_points_have_no_hold_outs_and_keep_the_bootstrap() -> None:
    found = fit(made(1, count=18))
    assert extrapolation(found) is None
    law = FittedLaw(found, tuple(bootstrap(found, 20)), 0)
    assert with_held_out(law, made(2), 1e30).held_out is None
    far = made(3).where(made(3).flops > found.points.flops.max())
    wide = replace(law, extrapolation=Extrapolation(0.1, 0.01, float(found.points.flops.max()), 1))
    low, high = law.intervals_of(far)
    lower, higher = wide.intervals_of(far)
    assert np.all(lower <= low)
    assert np.all(high <= higher)
    assert np.any(lower < low)


def test_an_interval_is_never_narrower() -> None:
    found = fit(made(4))
    points = made(5)
    ends = (np.full(len(points), 0.1), np.full(len(points), 100.0))
    wide = widened(ends, found, points, Extrapolation(0.1, 0.01, 1e18, 1))
    assert wide[0] == pytest.approx(ends[0])
    assert wide[1] == pytest.approx(ends[1])


def test_constants_that_points_do_not_identify_are_named() -> None:
    found = fit(made(6))

    def moved(shift: float) -> Law:
        first, second, *others = found.law.numbers
        return Law(HOFFMANN, (first, second + shift, *others))

    near, far = (tuple(map(moved, shifts)) for shifts in ((-0.2, 0.0, 0.2), (-0.5, 0.0, 0.5)))
    assert FittedLaw(found, near, 0).unidentified == ()
    assert FittedLaw(found, far, 0).unidentified == ("A",)


@pytest.mark.parametrize("below", [2e19, 5e19, 1e20, 2e20, 5e20, 1e21])
def test_nine_in_ten_larger_runs_are_in_their_intervals(shared: Callable[[str], Path], below: float) -> None:
    held_out = scaling.fit(shared(CHINCHILLA), drop=5, below_flops=below).held_out
    assert held_out is not None
    assert held_out.covered >= 0.9
    assert held_out.covered_if_law_is_true <= held_out.covered


def test_the_extrapolation_does_not_see_the_held_out_points(shared: Callable[[str], Path]) -> None:
    whole = scaling.fit(shared(CHINCHILLA), drop=5, below_flops=1e20, draws=20)
    assert whole.extrapolation is not None
    assert whole.extrapolation.fitted_flops < 1e20
    assert whole.extrapolation == extrapolation(fit(whole.fit.points))
