"""Profile intervals against the exact ones of a straight line, and likelihoods against their integrals."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, norm

from assay.scaling.fitting import bootstrap, fit
from assay.scaling.laws import HOFFMANN, form_named
from assay.scaling.laws.hoffmann import BESIROGLU, ROUNDED, UNROUNDED
from assay.scaling.points import read_points
from assay.scaling.profile import log_likelihood, log_likelihood_of, profile
from support.laws import drawn, known_law


def test_the_interval_of_a_slope_is_the_exact_one() -> None:
    """L(N) is a line in logarithms, so −2·log of the likelihood's ratio is n·log(1 + (α − α̂)²·Sxx/RSS)."""
    points = drawn(known_law("kaplan-size"), 30, 0, 0.01)
    found = fit(points, form_named("kaplan-size"))
    sizes, losses = np.log(points.parameters), np.log(points.loss)
    (slope, _), (rest,), *_ = np.polyfit(sizes, losses, 1, full=True)
    half = np.sqrt(rest * np.expm1(norm.ppf(0.975) ** 2 / len(points)) / ((sizes - sizes.mean()) ** 2).sum())
    low, high = profile(found, tuple(bootstrap(found, 100)), "normal").intervals["α_N"]
    assert (low, high) == pytest.approx((-slope - half, -slope + half), rel=2e-3)


@pytest.mark.parametrize("scale", [3e-4, 2e-3, 1e-2])
def test_the_density_of_the_likelihood_integrates_to_one(scale: float) -> None:
    """With one residual r at its most likely scale, the likelihood is that of a density of r whose integral is one."""
    delta, residual = 1e-3, scale

    def rho(size: float) -> float:
        return 0.5 * size**2 if size <= delta else delta * (size - 0.5 * delta)

    def log_density(tau: float) -> float:
        mass = quad(lambda size: 2 * np.exp(-rho(size) / tau**2), 0, delta)[0]
        return float(-rho(residual) / tau**2 - np.log(mass + 2 * tau**2 / delta * np.exp(-rho(delta) / tau**2)))

    slow = minimize_scalar(lambda log: -log_density(np.exp(log)), bounds=(-12, 0), method="bounded")
    assert log_likelihood(rho(residual), 1, delta) == pytest.approx(-slow.fun, abs=1e-3)


def test_the_normal_likelihood_is_that_of_the_residuals() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.02, 50)
    spread = np.sqrt((residuals**2).mean())
    slow = norm.logpdf(residuals, 0, spread).sum()
    assert log_likelihood(0.5 * float((residuals**2).sum()), 50, np.inf) == pytest.approx(slow)


def test_the_published_constants_of_hoffmann_are_far_less_likely(shared: Callable[[str], Path]) -> None:
    """Besiroglu et al. 2024: Hoffmann's constants fit much worse than theirs, and the rounded ones worst of all."""
    points = read_points(shared("chinchilla/hoffmann_figure4_extracted.csv")).without_highest(5)
    for likelihood in ("laplace", "normal"):
        best, unrounded, rounded = (
            log_likelihood_of(HOFFMANN.known(source), points, likelihood) for source in (BESIROGLU, UNROUNDED, ROUNDED)
        )
        surprising = chi2.isf(1e-12, len(HOFFMANN.constants))
        assert 2 * (best - unrounded) > surprising
        assert 2 * (best - rounded) > 2 * (best - unrounded)


def test_an_end_that_points_do_not_bound_is_open() -> None:
    """Without a break in the points, nothing bounds its width."""
    points = drawn(known_law("kaplan-compute"), 30, 4, 0.01)
    found = fit(points, form_named("broken-compute"))
    open_ended = profile(found, tuple(bootstrap(found, 60)), "normal").open_ended
    assert "f" in open_ended
