"""Many fits at once reach what L-BFGS reaches, one after another."""

import numpy as np
import pytest
from scipy.optimize import minimize

from assay.scaling.descent import descend, objectives
from assay.scaling.parametric import Parametric, _scaled
from assay.scaling.points import Points

TRUE = Parametric.of(1.7, 400.0, 1500.0, 0.34, 0.36)


def points(noise: float, seed: int, count: int = 60) -> Points:
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    return Points(sizes, tokens, TRUE.loss(sizes, tokens) * np.exp(noise * chance.standard_normal(count)))


def test_draws_reach_the_objective_of_l_bfgs() -> None:
    some, draws = points(0.01, 0), 5
    times = np.random.default_rng(1).multinomial(len(some), np.full(len(some), 1 / len(some)), size=draws)
    found = descend(np.repeat(TRUE.values[None], draws, axis=0), some.logs, times.astype(float))
    for row, drawn in zip(found, times, strict=True):
        alone = some.where(np.repeat(np.arange(len(some)), drawn))
        slow = minimize(_scaled, TRUE.values, alone.logs, jac=True, method="L-BFGS-B", options={"ftol": 1e-13})
        assert objectives(row[None], alone.logs)[0] <= float(slow.fun) / 1e3 * (1 + 1e-6)


def test_a_law_without_noise_is_the_optimum_of_every_near_start() -> None:
    some = points(0.0, 2)
    starts = TRUE.values + np.array([[0.0], [0.05], [-0.05]])
    assert descend(starts, some.logs) == pytest.approx(np.repeat(TRUE.values[None], 3, axis=0), rel=5e-3)


def test_rows_do_not_depend_on_each_other() -> None:
    some = points(0.01, 3)
    starts = np.repeat(TRUE.values[None], 300, axis=0)
    weights = np.random.default_rng(4).multinomial(60, np.full(60, 1 / 60), size=300).astype(float)
    together = descend(starts, some.logs, weights)
    assert together[280:] == pytest.approx(descend(starts[280:], some.logs, weights[280:]), rel=1e-6)


def test_objectives_are_sums_over_points() -> None:
    some = points(0.02, 5)
    rows = TRUE.values + np.linspace(-0.1, 0.1, 600)[:, None]
    every = objectives(rows, some.logs)
    each = [objectives(rows[[one]], some.logs)[0] for one in (0, 300, 599)]
    assert every[[0, 300, 599]] == pytest.approx(each)
    assert every.shape == (600,)
