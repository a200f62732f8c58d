"""Corrected times: the posterior is that of a regression on elements and pairs, written out."""

from itertools import combinations
from math import log

import numpy as np
import pytest

from assay.advise.problem import COMMON, ELEMENT, NOISE, PAIR, correct_times

ROOFLINE = {(): 1.0, (0,): 0.8, (1,): 0.9, (2,): 1.3, (0, 1): 0.7, (0, 2): 1.1, (0, 1, 2): 1.0}


def _features(stack: tuple[int, ...]) -> list[float]:
    singles = [ELEMENT * (i in stack) for i in range(3)]
    pairs = [PAIR * (set(pair) <= set(stack)) for pair in combinations(range(3), 2)]
    return [COMMON, *singles, *pairs]


def test_the_posterior_is_that_of_a_bayesian_regression() -> None:
    measured = {(): 3.0, (0,): 2.0, (0, 1): 3.5}
    found = correct_times(ROOFLINE, measured, 3)
    x = np.array([_features(stack) for stack in measured])
    y = np.array([log(measured[stack] / ROOFLINE[stack]) for stack in measured])
    precision = np.eye(x.shape[1]) + x.T @ x / NOISE**2
    weights = np.linalg.solve(precision, x.T @ y / NOISE**2)
    for stack, one in found.items():
        features = np.array(_features(stack))
        assert log(one.seconds / ROOFLINE[stack]) == pytest.approx(float(features @ weights), abs=1e-6)
        error = float(features @ np.linalg.solve(precision, features))
        assert one.margin == pytest.approx(1.96 * (error + NOISE**2) ** 0.5, rel=1e-4)


def test_a_common_factor_moves_all_and_a_slow_pair_only_stacks_that_have_it() -> None:
    measured = {(): 3.0, (0,): 2.4, (1,): 2.7, (0, 1): 6.3}
    found = correct_times(ROOFLINE, measured, 3)
    assert found[2,].seconds == pytest.approx(3 * 1.3, rel=0.05)
    assert found[0, 2].seconds < 1.3 * 3 * 1.1
    assert found[0, 1, 2].seconds > 1.5 * 3 * 1.0
    assert found[0, 1].margin < 0.12 < found[2,].margin


def test_without_times_nothing_is_corrected() -> None:
    found = correct_times({(): 1.0, (0,): 0.5}, {(0,): 0.5}, 1)
    assert found[()].seconds == pytest.approx(1.0, rel=1e-6)
