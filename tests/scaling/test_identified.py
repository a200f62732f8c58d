"""Constants that points identify: standard errors against finite differences, and a design on a line."""

import numpy as np
import pytest

from assay.scaling.curvature import LEAST_SCATTER
from assay.scaling.fitting import fit
from assay.scaling.identified import standard_errors, unidentified
from assay.scaling.points import Floats, Points
from support.laws import drawn, known_law

TRUE = known_law("hoffmann")


def test_standard_errors_are_those_of_least_squares() -> None:
    found = fit(drawn(TRUE, 60, 0, 0.01))

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
    found = fit(Points(sizes, 20 * sizes, np.asarray(TRUE.loss(sizes, 20 * sizes))))
    assert {"A", "B"} <= unidentified(found, 2.0)


def test_a_design_that_spreads_identifies_both_exponents() -> None:
    found = fit(drawn(TRUE, 200, 0, 0.001))
    assert not {"α", "β", "E"} & unidentified(found, 2.0)


def test_no_loss_is_known_better_than_the_least_scatter() -> None:
    exact = fit(drawn(TRUE, 60, 0, 0.0))
    assert np.sqrt(np.mean(exact.residuals**2)) < LEAST_SCATTER / 10
    assert np.all(standard_errors(exact) > LEAST_SCATTER / 10)
