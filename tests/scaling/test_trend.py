"""Losses that rise or have no trend are refused; a law of one acting term, or of few points, is not."""

from dataclasses import replace

import numpy as np
import pytest

from assay.errors import UsageError
from assay.scaling.fitting import FitResult, fit
from assay.scaling.laws import form_named, forms
from assay.scaling.points import Points, planned
from assay.scaling.trend import check_falling, mean_slopes, unexplained
from support.laws import design, drawn, known_law


@pytest.mark.parametrize("name", forms())
def test_every_known_law_falls(name: str) -> None:
    law = known_law(name)
    check_falling(FitResult(law, 0.0, drawn(law, 40, 0, 0.01)))


@pytest.mark.parametrize("name", ["hoffmann", "kaplan-joint", "kaplan-compute", "saturating"])
def test_rising_losses_are_a_sentence(name: str) -> None:
    falling = drawn(known_law(name), 30, 0, 0.001)
    rising = replace(falling, loss=10 / falling.loss)
    with pytest.raises(UsageError, match="the losses do not fall"):
        check_falling(fit(rising, form_named(name)))


@pytest.mark.parametrize("name", ["hoffmann", "kaplan-size", "saturating"])
def test_losses_without_a_trend_are_a_sentence(name: str) -> None:
    some = design(30, 0)
    losses = 3 * np.exp(0.01 * np.random.default_rng(1).standard_normal(30))
    with pytest.raises(UsageError, match="the losses do not fall"):
        check_falling(fit(replace(some, loss=losses), form_named(name)))


def test_a_loss_of_size_alone_falls() -> None:
    some = design(30, 0)
    law = known_law("kaplan-size")
    check_falling(fit(replace(some, loss=law.losses(some))))


def test_slopes_are_those_of_the_formula() -> None:
    law = known_law("kaplan-size")
    assert mean_slopes(FitResult(law, 0.0, drawn(law, 20, 0, 0.0))) == pytest.approx([-0.076], rel=1e-6)


def test_compute_that_follows_from_size_and_data_has_a_slope() -> None:
    law = known_law("kaplan-compute")
    some = drawn(law, 20, 0, 0.0)
    assert some.counted_flops is None
    assert mean_slopes(FitResult(law, 0.0, some)) == pytest.approx([-0.057], rel=1e-6)


def test_a_perfect_law_leaves_nothing_and_a_constant_leaves_all() -> None:
    form = form_named("kaplan-size")
    sizes = np.geomspace(1e7, 1e10, 20)
    exact = replace(planned(parameters=sizes), loss=known_law("kaplan-size").losses(planned(parameters=sizes)))
    assert unexplained(FitResult(known_law("kaplan-size"), 0.0, exact)) < 1e-6
    flat = form.of(1.0, 1e-9)
    spread: Points = replace(exact, loss=np.exp(np.tile([-0.1, 0.1], 10)))
    assert unexplained(FitResult(flat, 0.0, spread)) == pytest.approx(19 / 18, rel=1e-3)
