"""Fits of laws: descents against L-BFGS, bootstraps, curvature, and constants that points cannot tell apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from assay.scaling import fitting
from assay.scaling.descent import LEAST_SCATTER, UNKNOWN, DescentProblem, descend, objectives, spreads, whole
from assay.scaling.fitting import FitResult, _scaled, bootstrap, fit, objective, standard_errors, unidentified_constants
from assay.scaling.law_intervals import interval, of_losses
from assay.scaling.laws import HOFFMANN, forms
from assay.scaling.laws.hoffmann import BESIROGLU as PUBLISHED
from assay.scaling.laws.hoffmann import ROUNDED, UNROUNDED
from assay.scaling.points import Floats, Points, read_points
from support.laws import design, drawn, known_law

BESIROGLU = {"E": (1.8169, 0.026), "α": (0.3478, 0.015), "β": (0.3658, 0.021)}
"""Constants of Besiroglu et al. 2024 and their standard errors."""
FITTING_TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)


def chinchilla(shared: Callable[[str], Path]) -> Points:
    """The 240 points that are left without the five highest losses."""
    return read_points(shared("chinchilla/hoffmann_figure4_extracted.csv")).without_highest(5)


def made(noise: float, seed: int, count: int = 60) -> Points:
    """Points of a known law, with relative noise of their losses."""
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    return Points(sizes, tokens, FITTING_TRUE.loss(sizes, tokens) * np.exp(noise * chance.standard_normal(count)))


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
    assert fit(made(0.0, 0)).law.values == pytest.approx(FITTING_TRUE.values, rel=2e-3)


def test_the_order_of_points_does_not_matter() -> None:
    points = made(0.01, 1)
    turned = points.where(np.arange(len(points))[::-1])
    assert fit(turned).law.values == pytest.approx(fit(points).law.values, rel=1e-4)


def test_the_optimum_is_the_lowest_loss_at_its_compute() -> None:
    for flops in (1e18, 1e21, 1e24):
        best, tokens = FITTING_TRUE.optimum(flops)
        assert 6 * best * tokens == pytest.approx(flops)
        sizes: Floats = best * np.linspace(0.5, 2, 2001)
        assert sizes[FITTING_TRUE.loss(sizes, flops / 6 / sizes).argmin()] == pytest.approx(best, rel=2e-3)


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
    assert low < FITTING_TRUE.loss(3e9, 6e10) < high
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
    assert FitResult(FITTING_TRUE, 0.0, shifted).residuals == pytest.approx(np.full(len(points), np.log(1.01)))


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


DESCENT_TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)


def test_copies_of_runs_are_no_more_evidence_if_they_are_of_one_trunk() -> None:
    once = made(0.01, 3)
    twice = once.where(np.repeat(np.arange(len(once)), 2))
    twice = replace(twice, parameters=twice.parameters * np.linspace(1, 1 + 1e-6, len(twice)))  # no size has two runs
    trunks = replace(twice, trunk=np.repeat(np.arange(len(once), dtype=float), 2))

    def width(points: Points) -> float:
        low, high = interval(bootstrap(fit(points), 200, 5), lambda law: law.printed["E"])
        return high - low

    assert width(trunks) == pytest.approx(width(once), rel=0.05)
    assert width(twice) < 0.85 * width(once)


def points(noise: float, seed: int, count: int = 60) -> Points:
    return drawn(DESCENT_TRUE, count, seed, noise)


@pytest.mark.parametrize("name", forms())
def test_draws_reach_the_objective_of_l_bfgs(name: str) -> None:
    law, draws = known_law(name), 4
    some = drawn(law, 60, 0, 0.002)
    times = np.random.default_rng(1).multinomial(len(some), np.full(len(some), 1 / len(some)), size=draws)
    problem = DescentProblem(law.form, some)
    some_drawn = replace(whole(problem, draws), weights=times.astype(float))
    found = descend(problem, np.repeat(law.values[None], draws, axis=0), some_drawn)
    for row, drawn_times in zip(found, times, strict=True):
        alone = replace(problem, points=some.where(np.repeat(np.arange(len(some)), drawn_times)))
        slow = minimize(_scaled, law.values, (alone,), jac=True, method="L-BFGS-B", options={"ftol": 1e-13})
        assert objectives(alone, row[None])[0] <= float(slow.fun) / 1e3 * (1 + 1e-5)


def test_an_infinite_delta_is_least_squares() -> None:
    problem = DescentProblem(HOFFMANN, points(0.01, 6), np.inf)
    found = descend(problem, DESCENT_TRUE.values[None])
    slow = minimize(_scaled, DESCENT_TRUE.values, (problem,), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
    assert objectives(problem, found)[0] == pytest.approx(float(slow.fun) / 1e3, rel=1e-4)
    assert objectives(problem, found)[0] == pytest.approx(0.5 * (problem.residuals(found)[0] ** 2).sum())


def test_a_fixed_value_stays() -> None:
    start = DESCENT_TRUE.values + 0.05
    found = descend(DescentProblem(HOFFMANN, points(0.0, 2), fixed=3), start[None])[0]
    assert found[3] == start[3]
    assert np.all(found[[0, 1, 2, 4]] != start[[0, 1, 2, 4]])


def test_a_law_without_noise_is_the_optimum_of_every_near_start() -> None:
    starts = DESCENT_TRUE.values + np.array([[0.0], [0.05], [-0.05]])
    found = descend(DescentProblem(HOFFMANN, points(0.0, 2)), starts)
    assert found == pytest.approx(np.repeat(DESCENT_TRUE.values[None], 3, axis=0), rel=5e-3)


def test_rows_do_not_depend_on_each_other() -> None:
    problem = DescentProblem(HOFFMANN, points(0.01, 3))
    starts = np.repeat(DESCENT_TRUE.values[None], 300, axis=0)
    weights = np.random.default_rng(4).multinomial(60, np.full(60, 1 / 60), size=300).astype(float)
    some = replace(whole(problem, 300), weights=weights)
    together = descend(problem, starts, some)
    assert together[280:] == pytest.approx(descend(problem, starts[280:], some.of(slice(280, None))), rel=1e-6)


def test_objectives_are_sums_over_points() -> None:
    problem = DescentProblem(HOFFMANN, points(0.02, 5))
    rows = DESCENT_TRUE.values + np.linspace(-0.1, 0.1, 600)[:, None]
    every = objectives(problem, rows)
    each = [objectives(problem, rows[[one]])[0] for one in (0, 300, 599)]
    assert every[[0, 300, 599]] == pytest.approx(each)
    assert every.shape == (600,)


def test_impossible_values_have_huge_residuals() -> None:
    problem = DescentProblem(HOFFMANN, design(10, 0))
    assert np.all(problem.residuals(np.full((1, 5), np.nan))[0] > 1e50)


def test_the_covariance_is_that_of_least_squares() -> None:
    found = fit(drawn(known_law("hoffmann"), 60, 0, 0.01))
    problem = DescentProblem(HOFFMANN, found.points)
    factor = spreads(problem, found.law.values)
    slopes = problem.residuals(found.law.values[None])[1][0]
    scatter = np.sum(found.residuals**2) / (60 - 5)
    expected = scatter * np.linalg.inv(slopes.T @ slopes)
    assert factor @ factor.T == pytest.approx(expected, rel=1e-3)


def test_a_value_on_which_no_loss_depends_has_no_finite_error() -> None:
    """Without a term B/D^β, neither B nor β changes a loss; the error of the others is as without it."""
    some = design(30, 0)
    law = HOFFMANN.of(1.7, 400.0, 1e-300, 0.34, 0.36)
    factor = spreads(DescentProblem(HOFFMANN, replace(some, loss=law.losses(some))), law.values)
    errors = np.sqrt((factor**2).sum(axis=1))
    assert np.all(errors[[2, 4]] >= UNKNOWN)
    assert np.all(errors[[0, 1, 3]] < 10)


IDENTIFIED_TRUE = known_law("hoffmann")


def test_standard_errors_are_those_of_least_squares() -> None:
    found = fit(drawn(IDENTIFIED_TRUE, 60, 0, 0.01))

    def logs(values: Floats) -> Floats:
        return np.asarray(found.law.form.log_losses(values[None], found.points)[0][0])

    slopes = np.stack(
        [
            (logs(found.law.values + step) - logs(found.law.values - step)) / 2e-5
            for step in 1e-5 * np.eye(len(found.law.values))
        ],
        axis=1,
    )
    scatter = np.sqrt(np.sum(found.residuals**2) / (60 - 5))
    expected = scatter * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    assert standard_errors(found) == pytest.approx(expected, rel=1e-3)


def test_a_design_on_a_line_identifies_no_scale() -> None:
    """With D = 20·N and no noise, a bootstrap shows no error of A and B at all."""
    sizes = np.geomspace(1e7, 1e10, 40)
    found = fit(Points(sizes, 20 * sizes, np.asarray(IDENTIFIED_TRUE.loss(sizes, 20 * sizes))))
    assert {"A", "B"} <= unidentified_constants(found, 2.0)


def test_a_design_that_spreads_identifies_both_exponents() -> None:
    found = fit(drawn(IDENTIFIED_TRUE, 200, 0, 0.001))
    assert not {"α", "β", "E"} & unidentified_constants(found, 2.0)


def test_no_loss_is_known_better_than_the_least_scatter() -> None:
    exact = fit(drawn(IDENTIFIED_TRUE, 60, 0, 0.0))
    assert np.sqrt(np.mean(exact.residuals**2)) < LEAST_SCATTER / 10
    assert np.all(standard_errors(exact) > LEAST_SCATTER / 10)
