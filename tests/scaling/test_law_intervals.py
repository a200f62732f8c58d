"""Intervals of laws: by bootstrap and profile likelihood, beyond the fitted compute, with shared errors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, norm

from assay.api import scaling
from assay.report import view
from assay.scaling.descent import DescentProblem, descend
from assay.scaling.fitted import FittedLaw, with_held_out
from assay.scaling.fitting import FitResult, bootstrap, fit, law_of
from assay.scaling.law_intervals import (
    Extrapolation,
    extrapolation,
    gap,
    log_likelihood,
    log_likelihood_of,
    of_losses,
    profile,
    quantiles,
    widen_intervals,
)
from assay.scaling.laws import HOFFMANN, Law, form_named
from assay.scaling.laws.base import log_losses
from assay.scaling.laws.hoffmann import BESIROGLU, ROUNDED, UNROUNDED
from assay.scaling.points import Floats, Points, planned_points, read_points
from assay.scaling.shared import repeats_sizes, shared_errors
from support.laws import design, drawn, known_law


def test_equal_draws_leave_the_scatter_of_the_fit() -> None:
    law, noise = known_law("hoffmann"), 0.01
    found = fit(drawn(law, 200, 1, noise), law.form)
    points = design(20, 2)
    low, high = of_losses(found, [found.law] * 2000, points)
    assert np.log(high / found.law.losses(points)) == pytest.approx(np.full(20, 1.96 * noise), rel=0.2)
    assert np.log(found.law.losses(points) / low) == pytest.approx(np.full(20, 1.96 * noise), rel=0.2)


def test_a_draw_beyond_the_largest_number_leaves_finite_ends() -> None:
    law = known_law("hoffmann")
    found = fit(drawn(law, 40, 1, 0.01), law.form)
    far = form_named("hoffmann").of(1.0, 1e300, 1e300, -5.0, -5.0)
    low, high = of_losses(found, [found.law] * 199 + [far], design(20, 2))
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low < high).all()


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
    """Points of a pure power law do not bound a floor of the loss from below."""
    points = drawn(known_law("kaplan-compute"), 30, 4, 0.01)
    found = fit(points, form_named("saturating"))
    open_ended = profile(found, tuple(bootstrap(found, 60)), "normal").open_ended
    assert "c" in open_ended


EXTRAPOLATION_TRUE = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)
CHINCHILLA = "chinchilla/hoffmann_figure4_extracted.csv"


def made(seed: int, bend: float = 0.0, count: int = 80) -> Points:
    """Points whose log loss leaves the law by `bend` times the square of the powers of ten above 1e19 FLOPs."""
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    above = np.maximum(0, np.log10(6 * sizes * tokens / 1e19))
    noise = 0.005 * chance.standard_normal(count)
    return Points(sizes, tokens, EXTRAPOLATION_TRUE.loss(sizes, tokens) * np.exp(noise + bend * above**2))


def test_the_half_width_is_zero_within_and_grows_beyond() -> None:
    beyond = Extrapolation(growth=0.03, scatter=0.04, fitted_flops=1e20, origins=4)
    widths = beyond.half_widths(1e20 * np.exp([-1.0, 0.0, 1.0, 10.0]))
    assert widths == pytest.approx([0.0, 0.0, 0.05, np.hypot(0.04, 0.3)])


def test_a_law_that_bends_within_its_points_has_wider_intervals_and_covers() -> None:
    straight, bent = (extrapolation(fit(made(0, bend).where(made(0).flops < 3e20))) for bend in (0.0, 0.02))
    assert straight is not None
    assert bent is not None
    assert bent.growth > 2 * straight.growth
    points = made(0, 0.02, 160)
    found = fit(points.where(points.flops < 1e21))
    law = FittedLaw(found, tuple(bootstrap(found, 100)), 0, extrapolation=extrapolation(found))
    held_out = with_held_out(law, points, 1e21).held_out
    assert held_out is not None
    assert held_out.covered >= 0.9 > held_out.covered_if_law_is_true


@pytest.mark.parametrize(
    ("sizes", "cut", "moved"),
    [
        ([1, 2, 2.001, 2.002, 3], 2.001, 2),
        ([1, 2, 2.001, 2.002, 3], 2.0015, 2),
        ([1, 2, 2.001, 2.002, 3], 2, 2),
        ([1, 2, 2.001, 2.002, 3], 2.5, 2.5),
        ([1, 2.03, 2.015, 2, 3], 2.03, 2),
        ([2, 2.001, 2.002, 3], 2.001, 2.001),
        ([1, 2], 5, 5),
    ],
)
def test_a_cut_moves_to_a_gap_between_budgets(sizes: list[float], cut: float, moved: float) -> None:
    assert gap(np.array(sizes), cut) == moved


def test_origins_do_not_divide_budgets_that_are_written_with_rounding() -> None:
    exact = np.repeat(1e18 * 10.0 ** np.arange(4), 15)
    parameters = exact**0.5 * np.tile(np.geomspace(0.03, 0.3, 15), 4)
    plain, rounded = (
        Points(parameters, flops / 6 / parameters, EXTRAPOLATION_TRUE.loss(parameters, exact / 6 / parameters))
        for flops in (exact, exact * (1 + 1e-6 * np.sin(np.arange(60))))
    )
    found, other = (extrapolation(fit(one)) for one in (plain, rounded))
    assert found is not None
    assert other is not None
    assert other.origins == found.origins
    assert other.growth == pytest.approx(found.growth, abs=1e-4)


def test_too_few_points_have_no_hold_outs_and_keep_the_bootstrap() -> None:
    found = fit(made(1, count=18))
    assert extrapolation(found) is None
    law = FittedLaw(found, tuple(bootstrap(found, 20)), 0)
    assert with_held_out(law, made(2), 1e30).held_out is None
    far = made(3).where(made(3).flops > found.points.flops.max())
    wide = replace(law, extrapolation=Extrapolation(0.1, 0.01, float(found.points.flops.max()), 1))
    low, high = law.intervals_of(far)
    lower, higher = wide.intervals_of(far)
    assert np.all(lower <= low)
    assert np.all(high <= higher)
    assert np.any(lower < low)


def test_an_interval_is_never_narrower() -> None:
    found = fit(made(4))
    points = made(5)
    ends = (np.full(len(points), 0.1), np.full(len(points), 100.0))
    wide = widen_intervals(ends, found, points, Extrapolation(0.1, 0.01, 1e18, 1))
    assert wide[0] == pytest.approx(ends[0])
    assert wide[1] == pytest.approx(ends[1])


def test_constants_that_points_do_not_identify_are_named() -> None:
    found = fit(made(6))

    def moved(shift: float) -> Law:
        first, second, *others = found.law.numbers
        return Law(HOFFMANN, (first, second + shift, *others))

    near, far = (tuple(map(moved, shifts)) for shifts in ((-0.2, 0.0, 0.2), (-0.5, 0.0, 0.5)))
    assert FittedLaw(found, near, 0).unidentified == ()
    assert FittedLaw(found, far, 0).unidentified == ("A",)


@pytest.mark.parametrize("below", [2e19, 5e19, 1e20, 2e20, 5e20, 1e21])
def test_nine_in_ten_larger_runs_are_in_their_intervals(shared: Callable[[str], Path], below: float) -> None:
    held_out = scaling.fit(shared(CHINCHILLA), drop=5, below_flops=below).held_out
    assert held_out is not None
    assert held_out.covered >= 0.9
    assert held_out.covered_if_law_is_true <= held_out.covered


def test_the_extrapolation_does_not_see_the_held_out_points(shared: Callable[[str], Path]) -> None:
    whole = scaling.fit(shared(CHINCHILLA), drop=5, below_flops=1e20, draws=20)
    assert whole.extrapolation is not None
    assert whole.extrapolation.fitted_flops < 1e20
    assert whole.extrapolation == extrapolation(fit(whole.fit.points))


SHARED_TRUE = HOFFMANN.of(1.8, 480.0, 2100.0, 0.35, 0.37)
RUNS, OWN = 5, 0.005


def grid(sizes: int, errors: Floats) -> Points:
    """Five runs of each size, with errors of log L `[sizes, runs]`."""
    parameters = np.repeat(10 ** np.linspace(7.5, 10, sizes), RUNS)
    points = planned_points(
        parameters=parameters, tokens=parameters * np.tile(10 ** np.linspace(0.3, 2.3, RUNS), sizes)
    )
    return replace(points, loss=SHARED_TRUE.losses(points) * np.exp(errors.ravel()))


def fitted(points: Points) -> FitResult:
    return FitResult(
        law_of(HOFFMANN, descend(DescentProblem(HOFFMANN, points), SHARED_TRUE.values[None])[0]), 0.0, points
    )


@pytest.mark.parametrize("shared", [0.0, 0.004, 0.012])
def test_the_variance_of_shared_errors_is_that_of_the_residuals_of_least_squares(shared: float) -> None:
    chance, found = np.random.default_rng(1), []
    for _ in range(150):
        errors = OWN * chance.standard_normal((8, RUNS)) + shared * chance.standard_normal((8, 1))
        problem = DescentProblem(HOFFMANN, grid(8, errors), np.inf)
        one = shared_errors(problem, descend(problem, SHARED_TRUE.values[None])[0])
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
    far = planned_points(parameters=[3e10], tokens=[6e11])
    for seed in range(sets):
        chance = np.random.default_rng(seed)
        errors = OWN * chance.standard_normal((8, RUNS)) + 0.01 * chance.standard_normal((8, 1))
        laws = bootstrap(fitted(grid(8, errors)), 60, seed)
        ends = [quantiles(one) for one in np.array([law.numbers for law in laws]).T.tolist()]
        ends.append(quantiles(log_losses(laws, far)[:, 0].tolist()))
        true = [*SHARED_TRUE.numbers, float(np.log(SHARED_TRUE.losses(far))[0])]
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
        one = shared_errors(problem, descend(problem, SHARED_TRUE.values[None])[0])
        shown.append(one is not None and one.shown)
    assert np.mean(shown) == pytest.approx(share, abs=3.5 * np.sqrt(0.25 * 0.75 / 150) if share < 1 else 0.03)


def test_runs_of_different_sizes_share_nothing() -> None:
    points = grid(8, np.zeros((8, RUNS)))
    apart = replace(points, parameters=points.parameters * np.linspace(1, 1.01, len(points)))
    assert not repeats_sizes(DescentProblem(HOFFMANN, apart))
    assert shared_errors(DescentProblem(HOFFMANN, apart), SHARED_TRUE.values) is None


def test_too_few_sizes_are_said_to_hide_shared_errors() -> None:
    said = "too few to show errors that all runs of one size share"
    for sizes, hidden in ((3, True), (8, False)):
        found = fitted(grid(sizes, OWN * np.random.default_rng(3).standard_normal((sizes, RUNS))))
        law = FittedLaw(found, (found.law,) * 20, dropped=0)
        assert law.hides_shared_errors is hidden
        assert (said in " ".join(map(str, view(law).blocks()))) is hidden
