"""Errors that runs of one size share: their variance against simulations, and the intervals that know of them."""

from dataclasses import replace

import numpy as np
import pytest

from assay.report.laws import fit_report
from assay.scaling.descent import DescentProblem, descend
from assay.scaling.fitted import FittedLaw
from assay.scaling.fitting import FitResult, bootstrap, law_of
from assay.scaling.interval import quantiles
from assay.scaling.laws import HOFFMANN
from assay.scaling.laws.base import log_losses
from assay.scaling.points import Floats, Points, planned
from assay.scaling.shared import repeats_sizes, shared_errors

TRUE = HOFFMANN.of(1.8, 480.0, 2100.0, 0.35, 0.37)
RUNS, OWN = 5, 0.005


def grid(sizes: int, errors: Floats) -> Points:
    """Five runs of each size, with errors of log L `[sizes, runs]`."""
    parameters = np.repeat(10 ** np.linspace(7.5, 10, sizes), RUNS)
    points = planned(parameters=parameters, tokens=parameters * np.tile(10 ** np.linspace(0.3, 2.3, RUNS), sizes))
    return replace(points, loss=TRUE.losses(points) * np.exp(errors.ravel()))


def fitted(points: Points) -> FitResult:
    return FitResult(law_of(HOFFMANN, descend(DescentProblem(HOFFMANN, points), TRUE.values[None])[0]), 0.0, points)


@pytest.mark.parametrize("shared", [0.0, 0.004, 0.012])
def test_the_variance_of_shared_errors_is_that_of_the_residuals_of_least_squares(shared: float) -> None:
    chance, found = np.random.default_rng(1), []
    for _ in range(150):
        errors = OWN * chance.standard_normal((8, RUNS)) + shared * chance.standard_normal((8, 1))
        problem = DescentProblem(HOFFMANN, grid(8, errors), np.inf)
        one = shared_errors(problem, descend(problem, TRUE.values[None])[0])
        assert one is not None
        assert one.degrees[0] + one.degrees[1] == pytest.approx(40 - 5)
        # Without the limit at zero the estimate has no bias.
        found.append((one.between - one.within / one.degrees[1] * one.degrees[0]) / one.weight)
    error = 4 * np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(shared**2, abs=error + 2e-6)


def test_a_run_far_off_is_no_shared_error() -> None:
    errors = OWN * np.random.default_rng(2).standard_normal((8, RUNS))
    errors[3, 2] = 0.2
    found = fitted(grid(8, errors))
    one = shared_errors(DescentProblem(HOFFMANN, found.points), found.law.values)
    assert one is not None
    assert float(one.variance()) < OWN**2
    assert not one.shown


def test_intervals_know_of_errors_that_a_size_shares() -> None:
    """A bootstrap of single runs covers E, A and α in two of three such sets."""
    sets, covered = 40, []
    far = planned(parameters=[3e10], tokens=[6e11])
    for seed in range(sets):
        chance = np.random.default_rng(seed)
        errors = OWN * chance.standard_normal((8, RUNS)) + 0.01 * chance.standard_normal((8, 1))
        laws = bootstrap(fitted(grid(8, errors)), 60, seed)
        ends = [quantiles(one) for one in np.array([law.numbers for law in laws]).T.tolist()]
        ends.append(quantiles(log_losses(laws, far)[:, 0].tolist()))
        true = [*TRUE.numbers, float(np.log(TRUE.losses(far))[0])]
        covered.append([low <= value <= high for (low, high), value in zip(ends, true, strict=True)])
    assert (np.mean(covered, axis=0) > 0.93 - 3 * np.sqrt(0.93 * 0.07 / sets)).all()


@pytest.mark.parametrize(("shared", "share"), [(0.0, 0.25), (0.01, 1.0)])
def test_shared_errors_are_shown_at_the_level_of_the_test_and_always_if_they_are_large(
    shared: float, share: float
) -> None:
    chance, shown = np.random.default_rng(4), []
    for _ in range(150):
        errors = OWN * chance.standard_normal((8, RUNS)) + shared * chance.standard_normal((8, 1))
        problem = DescentProblem(HOFFMANN, grid(8, errors), np.inf)
        one = shared_errors(problem, descend(problem, TRUE.values[None])[0])
        shown.append(one is not None and one.shown)
    assert np.mean(shown) == pytest.approx(share, abs=3.5 * np.sqrt(0.25 * 0.75 / 150) if share < 1 else 0.03)


def test_runs_of_different_sizes_share_nothing() -> None:
    points = grid(8, np.zeros((8, RUNS)))
    apart = replace(points, parameters=points.parameters * np.linspace(1, 1.01, len(points)))
    assert not repeats_sizes(DescentProblem(HOFFMANN, apart))
    assert shared_errors(DescentProblem(HOFFMANN, apart), TRUE.values) is None


def test_too_few_sizes_are_said_to_hide_shared_errors() -> None:
    said = "too few to show errors that all runs of one size share"
    for sizes, hidden in ((3, True), (8, False)):
        found = fitted(grid(sizes, OWN * np.random.default_rng(3).standard_normal((sizes, RUNS))))
        law = FittedLaw(found, (found.law,) * 20, dropped=0)
        assert law.hides_shared_errors is hidden
        assert (said in " ".join(map(str, fit_report(law)))) is hidden
