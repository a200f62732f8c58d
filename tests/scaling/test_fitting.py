"""Fits: the parametric law against published constants and optima, and against laws that are known."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.scaling import fitting
from assay.scaling.fitting import FitResult, bootstrap, fit, objective
from assay.scaling.interval import interval, of_losses
from assay.scaling.laws import HOFFMANN
from assay.scaling.laws.hoffmann import BESIROGLU as PUBLISHED
from assay.scaling.laws.hoffmann import ROUNDED, UNROUNDED
from assay.scaling.points import Floats, Points, read_points

BESIROGLU = {"E": (1.8169, 0.026), "α": (0.3478, 0.015), "β": (0.3658, 0.021)}
"""Constants of Besiroglu et al. 2024 and their standard errors."""
TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)


def chinchilla(shared: Callable[[str], Path]) -> Points:
    """The 240 points that are left without the five highest losses."""
    return read_points(shared("chinchilla/hoffmann_figure4_extracted.csv")).without_highest(5)


def made(noise: float, seed: int, count: int = 60) -> Points:
    """Points of a known law, with relative noise of their losses."""
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    return Points(sizes, tokens, TRUE.loss(sizes, tokens) * np.exp(noise * chance.standard_normal(count)))


def test_the_published_fit_is_found_again(shared: Callable[[str], Path]) -> None:
    found = fit(chinchilla(shared))
    assert len(found.points) == 240
    assert found.objective <= 0.0010183
    for name, (value, error) in BESIROGLU.items():
        assert abs(found.law.printed[name] - value) < error
    assert found.law.printed["A"] == pytest.approx(482.01, rel=0.1)
    assert found.law.printed["B"] == pytest.approx(2085.43, rel=0.1)
    printed = HOFFMANN.known(ROUNDED)
    assert objective(printed, found.points) > 2 * found.objective


def test_bootstrap_intervals_hold_the_published_centres(shared: Callable[[str], Path]) -> None:
    """All five constants of Besiroglu et al. 2024."""
    laws = bootstrap(fit(chinchilla(shared)), 200)
    for name, centre in HOFFMANN.known(PUBLISHED).printed.items():
        low, high = interval(laws, lambda law, name=name: law.printed[name])
        assert low < centre < high


def test_a_law_without_noise_is_recovered() -> None:
    assert fit(made(0.0, 0)).law.values == pytest.approx(TRUE.values, rel=2e-3)


def test_the_order_of_points_does_not_matter() -> None:
    points = made(0.01, 1)
    turned = points.where(np.arange(len(points))[::-1])
    assert fit(turned).law.values == pytest.approx(fit(points).law.values, rel=1e-4)


def test_the_optimum_is_the_lowest_loss_at_its_compute() -> None:
    for flops in (1e18, 1e21, 1e24):
        best, tokens = TRUE.optimum(flops)
        assert 6 * best * tokens == pytest.approx(flops)
        sizes: Floats = best * np.linspace(0.5, 2, 2001)
        assert sizes[TRUE.loss(sizes, flops / 6 / sizes).argmin()] == pytest.approx(best, rel=2e-3)


def test_rounded_constants_change_the_optimum() -> None:
    """Besiroglu et al. 2024: at 5.76e23 FLOPs, Chinchilla's compute, 92.6 tokens a parameter instead of 58.9."""
    rounded = HOFFMANN.known(ROUNDED)
    exact = HOFFMANN.known(UNROUNDED)
    ratios = [tokens / size for size, tokens in (law.optimum(5.76e23) for law in (rounded, exact))]
    assert ratios == pytest.approx([92.6, 58.9], rel=0.005)


def test_intervals_hold_what_is_known_and_repeat_for_a_seed() -> None:
    found = fit(made(0.01, 5))
    laws = bootstrap(found, 60, seed=1)
    assert laws == bootstrap(found, 60, seed=1)
    low, high = interval(laws, lambda law: float(law.loss(3e9, 6e10)))
    assert low < TRUE.loss(3e9, 6e10) < high
    fresh = made(0.01, 6, 400)
    ends = of_losses(found, laws, fresh)
    assert np.mean((ends[0] <= fresh.loss) & (fresh.loss <= ends[1])) > 0.88


@pytest.mark.parametrize(("below", "error"), [(1e20, 0.0095), (1e21, 0.011)])
def test_larger_runs_are_predicted_from_smaller_ones(shared: Callable[[str], Path], below: float, error: float) -> None:
    points = chinchilla(shared)
    small, large = (points.where(mask) for mask in (points.flops < below, points.flops >= below))
    found = fit(small)
    missed = np.abs(found.law.loss(large.parameters, large.tokens) / large.loss - 1)
    assert missed.mean() <= error


def test_residuals_are_relative() -> None:
    points = made(0.0, 0)
    shifted = Points(points.parameters, points.tokens, 1.01 * points.loss)
    assert FitResult(TRUE, 0.0, shifted).residuals == pytest.approx(np.full(len(points), np.log(1.01)))


def test_draws_move_in_a_direction_in_which_losses_do_not_change() -> None:
    """The loss depends on N alone, so nothing is known of B and β, and little of the best size."""
    some = made(0.01, 3)
    found = fit(Points(some.parameters, some.tokens, 1.5 + 400 * some.parameters**-0.34))
    laws = bootstrap(found, 40, seed=0)
    low, high = interval(laws, lambda law: np.log(law.printed["B"]))
    assert high - low > 1


def test_draws_of_an_identified_law_descend_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = fit(made(0.001, 5, 200)), []
    descend = fitting.descend
    monkeypatch.setattr(fitting, "descend", lambda *given: calls.append(1) or descend(*given))
    bootstrap(found, 20)
    assert len(calls) == 1
