"""Many fits at once reach what L-BFGS reaches, one after another, for every law."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from assay.scaling.descent import DescentProblem, descend, objectives, whole
from assay.scaling.fitting import _scaled
from assay.scaling.laws import HOFFMANN, forms
from assay.scaling.points import Points
from support.laws import design, drawn, known_law

TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)


def points(noise: float, seed: int, count: int = 60) -> Points:
    return drawn(TRUE, count, seed, noise)


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
    found = descend(problem, TRUE.values[None])
    slow = minimize(_scaled, TRUE.values, (problem,), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
    assert objectives(problem, found)[0] == pytest.approx(float(slow.fun) / 1e3, rel=1e-4)
    assert objectives(problem, found)[0] == pytest.approx(0.5 * (problem.residuals(found)[0] ** 2).sum())


def test_a_fixed_value_stays() -> None:
    start = TRUE.values + 0.05
    found = descend(DescentProblem(HOFFMANN, points(0.0, 2), fixed=3), start[None])[0]
    assert found[3] == start[3]
    assert np.all(found[[0, 1, 2, 4]] != start[[0, 1, 2, 4]])


def test_a_law_without_noise_is_the_optimum_of_every_near_start() -> None:
    starts = TRUE.values + np.array([[0.0], [0.05], [-0.05]])
    found = descend(DescentProblem(HOFFMANN, points(0.0, 2)), starts)
    assert found == pytest.approx(np.repeat(TRUE.values[None], 3, axis=0), rel=5e-3)


def test_rows_do_not_depend_on_each_other() -> None:
    problem = DescentProblem(HOFFMANN, points(0.01, 3))
    starts = np.repeat(TRUE.values[None], 300, axis=0)
    weights = np.random.default_rng(4).multinomial(60, np.full(60, 1 / 60), size=300).astype(float)
    some = replace(whole(problem, 300), weights=weights)
    together = descend(problem, starts, some)
    assert together[280:] == pytest.approx(descend(problem, starts[280:], some.of(slice(280, None))), rel=1e-6)


def test_objectives_are_sums_over_points() -> None:
    problem = DescentProblem(HOFFMANN, points(0.02, 5))
    rows = TRUE.values + np.linspace(-0.1, 0.1, 600)[:, None]
    every = objectives(problem, rows)
    each = [objectives(problem, rows[[one]])[0] for one in (0, 300, 599)]
    assert every[[0, 300, 599]] == pytest.approx(each)
    assert every.shape == (600,)


def test_impossible_values_have_huge_residuals() -> None:
    problem = DescentProblem(HOFFMANN, design(10, 0))
    assert np.all(problem.residuals(np.full((1, 5), np.nan))[0] > 1e50)
