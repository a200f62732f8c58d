"""A whole fit: the outlier rule before every split, hold-outs by compute, and what a fit of too few points says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.api.optimal import frontier_of
from assay.errors import UsageError
from assay.report import view
from assay.scaling.fitted import FittedLaw, fit_law
from assay.scaling.fitting import FitResult, fit
from assay.scaling.law_intervals import extents
from assay.scaling.laws import HOFFMANN, form_named
from assay.scaling.points import planned_points
from support.laws import drawn, known_law

POINTS = drawn(known_law("hoffmann"), 50, 0, 0.01).in_order()


def test_all_points_are_fitted_and_the_larger_ones_test_a_law_of_the_smaller() -> None:
    found = fit_law(POINTS, HOFFMANN, draws=20, seed=0)
    assert found.fit.law == fit(POINTS).law
    assert found.held_out is not None
    assert (found.held_out.fitted, found.held_out.count) == (40, 10)
    small = POINTS.where(POINTS.flops < found.held_out.below)
    large = POINTS.where(POINTS.flops >= found.held_out.below)
    errors = np.abs(fit(small).law.losses(large) / large.loss - 1)
    assert found.held_out.mean_error == pytest.approx(errors.mean())


def test_points_of_one_budget_are_all_fitted_or_all_held_out() -> None:
    law, flops = known_law("hoffmann"), np.repeat(10.0 ** np.arange(16, 22), 8)
    sizes = flops**0.5 * np.tile(np.geomspace(0.05, 0.5, 8), 6)
    written = flops * (1 + 1e-6 * np.sin(np.arange(48)))
    points = planned_points(parameters=sizes, tokens=written / 6 / sizes)
    found = fit_law(replace(points, loss=law.losses(points)), HOFFMANN, draws=20, seed=0).held_out
    assert found is not None
    assert (found.fitted, found.count) == (32, 16)


def test_a_cut_fits_the_smaller_points_only() -> None:
    found = fit_law(POINTS, HOFFMANN, below=1e20, draws=20, seed=0)
    assert found.fit.points.flops.max() < 1e20
    assert found.held_out is not None
    assert found.held_out.fitted == len(found.fit.points) < 50
    assert found.held_out.count == 50 - len(found.fit.points)


def test_outliers_leave_before_the_split_and_the_fit_of_all_stays() -> None:
    found = fit_law(POINTS, HOFFMANN, drop=3, draws=20, seed=0)
    assert len(found.fit.points) == 47
    assert found.fit.points.loss.max() < np.sort(POINTS.loss)[-3]
    assert found.undropped is not None
    assert found.undropped.law == fit(POINTS).law
    assert fit_law(POINTS, HOFFMANN, draws=20, seed=0).undropped is None


def test_nothing_is_held_out_if_it_is_not_wanted_or_cannot_be() -> None:
    assert fit_law(POINTS, HOFFMANN, hold_out=False, draws=5, seed=0).held_out is None
    assert fit_law(POINTS.where(np.arange(6)), HOFFMANN, draws=5, seed=0).held_out is None


def test_a_law_of_size_alone_is_held_out_by_size() -> None:
    form = form_named("kaplan-size")
    found = fit_law(drawn(known_law("kaplan-size"), 30, 0, 0.01), form, draws=20, seed=0)
    assert found.held_out is not None
    assert np.sum(extents(found.fit.points, form) >= found.held_out.below) == found.held_out.count == 6


def test_too_few_points_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="2 points are left to fit; the law hoffmann needs at least 6"):
        fit_law(POINTS, HOFFMANN, drop=48, draws=5, seed=0)
    one_size = POINTS.where(np.array([0] * 8))
    with pytest.raises(UsageError, match="of several sizes"):
        fit_law(one_size, HOFFMANN, draws=5, seed=0)


def test_results_repeat_for_a_seed() -> None:
    once, again = (fit_law(POINTS, HOFFMANN, draws=10, seed=3, profile="laplace") for _ in range(2))
    assert once.intervals == again.intervals
    assert once.profile == again.profile
    assert once.held_out == again.held_out


def test_a_cut_above_all_points_is_refused() -> None:
    points = drawn(known_law("hoffmann"), 20, 0, 0.01)
    with pytest.raises(UsageError, match="nothing tests the law; give a lower cut"):
        scaling.fit(points, below_flops=1e40, draws=20)


def test_intervals_do_not_depend_on_the_order_of_points() -> None:
    once, turned = (fit_law(one, HOFFMANN, draws=20, seed=0) for one in (POINTS, POINTS.where(np.arange(50)[::-1])))
    assert once.intervals == turned.intervals
    assert once.held_out == turned.held_out


def test_rising_losses_are_refused() -> None:
    with pytest.raises(UsageError, match="the losses do not fall"):
        fit_law(replace(POINTS, loss=10 / POINTS.loss), HOFFMANN, draws=20)


@pytest.mark.parametrize("below", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_cut_that_is_no_number_of_flops_is_a_sentence(below: float) -> None:
    with pytest.raises(UsageError, match="is not possible; give a number above 0"):
        scaling.fit(POINTS, below_flops=below, draws=20)


def test_a_constant_at_its_limit_is_named_with_the_limit() -> None:
    """A Hoffmann law is a law of Droppo and Elibol whose γ is 1, its limit."""
    found = fit_law(drawn(known_law("hoffmann"), 60, 0, 0.0), form_named("droppo"), draws=20, hold_out=False)
    assert found.at_limit == {"γ": 1.0}
    assert found.deciding == ("γ",)
    assert set(found.unidentified) == set(found.law.printed)
    text = " ".join(map(str, view(found).blocks()))
    assert "γ is at 1, a limit of this law." in text
    assert "do not identify γ, which decides what the other constants mean" in text


def test_a_law_that_rises_with_data_says_so() -> None:
    law = HOFFMANN.of(2.0, 400.0, 1e-5, 0.35, -0.4)
    found = FittedLaw(FitResult(law, 0.0, replace(POINTS, loss=law.losses(POINTS))), (law,) * 20, dropped=0)
    assert found.rising == ("tokens",)
    assert "The fitted loss rises with tokens" in " ".join(map(str, view(found).blocks()))


@pytest.mark.parametrize(
    ("slope", "refusal"), [(1e-6, "no best size is near the sizes of your points"), (-1e-6, "no size is best under")]
)
def test_an_optimum_far_from_the_points_is_none_of_theirs(slope: float, refusal: str) -> None:
    """A fit of losses that do not depend on data has any small slope: its sign differs from processor to processor."""
    law = HOFFMANN.of(0.9, 400.0, 0.9, 0.34, slope)
    alone = FittedLaw(FitResult(law, 0.0, replace(POINTS, loss=law.losses(POINTS))), (law,) * 20, dropped=0)
    assert not alone.supports_optimum
    assert "No best size is near" in " ".join(map(str, view(alone).blocks()))
    with pytest.raises(UsageError, match=refusal):
        frontier_of(alone, "your points")
    assert fit_law(POINTS, HOFFMANN, draws=20, hold_out=False).supports_optimum


def test_a_point_far_off_the_law_is_named() -> None:
    off = POINTS.loss.copy()
    off[7] *= 1.5
    text = " ".join(map(str, view(fit_law(replace(POINTS, loss=off), HOFFMANN, draws=20, hold_out=False)).blocks()))
    assert f"a loss of {off[7]:.4g} is" in text
    assert "times the scatter. Check it" in text


def test_points_without_scatter_are_said_to_have_none() -> None:
    exact = drawn(known_law("hoffmann"), 40, 0, 0.0)
    assert "The points lie on the law" in " ".join(map(str, view(fit_law(exact, HOFFMANN, draws=20)).blocks()))


def test_a_term_that_vanished_is_at_zero() -> None:
    sizes, tokens = POINTS.parameters, POINTS.tokens
    found = fit_law(replace(POINTS, loss=30 / sizes**0.15 + 60 / tokens**0.15), HOFFMANN, draws=20, hold_out=False)
    assert found.at_limit == {"E": 0.0}


def test_a_question_is_outside_in_the_quantity_in_which_it_is_furthest() -> None:
    found = fit_law(POINTS, HOFFMANN, draws=20, hold_out=False)
    large, little = 62 * POINTS.parameters.max(), POINTS.tokens.min() / 50
    answer = found.predict(planned_points(parameters=[large, 1e9], tokens=[POINTS.tokens.min(), little]), far=True)
    assert answer.beyond[0] == pytest.approx(62)
    assert answer.furthest == ("parameters", "tokens")
    assert answer.beyond[1] == pytest.approx(50)
    with pytest.raises(UsageError, match="times beyond the fitted points"):
        found.predict(planned_points(parameters=2e4 * POINTS.parameters.max(), tokens=1e9))


def test_published_constants_have_a_reach() -> None:
    with pytest.raises(UsageError, match="times beyond the fitted points"):
        scaling.predict("kaplan-size", parameters=1e14)
    assert scaling.predict("kaplan-size", parameters=1e14, far=True).beyond == pytest.approx([1e14 / 1.5e9])
    assert np.isnan(scaling.predict("repeated", parameters=1e9, tokens=1e10, unique_tokens=1e9).beyond).all()


def test_a_file_without_points_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"points are a file, a study, or assay\.scaling\.points\.Points"):
        scaling.fit([{"parameters": 1}])  # type: ignore[arg-type]
    (tmp_path / "points.csv").write_text("N,D,loss\n")
    with pytest.raises(UsageError, match="is a file; fit its points first"):
        scaling.predict(str(tmp_path / "points.csv"), parameters=1e9, tokens=1e9)
