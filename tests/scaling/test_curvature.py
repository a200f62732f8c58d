"""Spreads of a fit's values: their covariance, and directions on which no loss depends."""

from dataclasses import replace

import numpy as np
import pytest

from assay.scaling.curvature import UNKNOWN, spreads
from assay.scaling.descent import DescentProblem
from assay.scaling.fitting import fit
from assay.scaling.laws import HOFFMANN
from support.laws import design, drawn, known_law


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
