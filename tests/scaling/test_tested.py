"""A whole fit: the outlier rule before every split, hold-outs by compute, and what a fit of too few points says."""

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.extrapolation import extents
from assay.scaling.fitting import fit
from assay.scaling.laws import HOFFMANN, form_named
from assay.scaling.tested import fitted
from support.laws import drawn, known_law

POINTS = drawn(known_law("hoffmann"), 50, 0, 0.01)


def test_all_points_are_fitted_and_the_larger_ones_test_a_law_of_the_smaller() -> None:
    found = fitted(POINTS, HOFFMANN, draws=20, seed=0)
    assert found.fit == fit(POINTS)
    assert found.held_out is not None
    assert (found.held_out.fitted, found.held_out.count) == (40, 10)
    small = POINTS.where(POINTS.flops < found.held_out.below)
    large = POINTS.where(POINTS.flops >= found.held_out.below)
    errors = np.abs(fit(small).law.losses(large) / large.loss - 1)
    assert found.held_out.mean_error == pytest.approx(errors.mean())


def test_a_cut_fits_the_smaller_points_only() -> None:
    found = fitted(POINTS, HOFFMANN, below=1e20, draws=20, seed=0)
    assert found.fit.points.flops.max() < 1e20
    assert found.held_out is not None
    assert found.held_out.fitted == len(found.fit.points) < 50
    assert found.held_out.count == 50 - len(found.fit.points)


def test_outliers_leave_before_the_split_and_the_fit_of_all_stays() -> None:
    found = fitted(POINTS, HOFFMANN, drop=3, draws=20, seed=0)
    assert len(found.fit.points) == 47
    assert found.fit.points.loss.max() < np.sort(POINTS.loss)[-3]
    assert found.undropped is not None
    assert found.undropped.law == fit(POINTS).law
    assert fitted(POINTS, HOFFMANN, draws=20, seed=0).undropped is None


def test_nothing_is_held_out_if_it_is_not_wanted_or_cannot_be() -> None:
    assert fitted(POINTS, HOFFMANN, hold_out=False, draws=5, seed=0).held_out is None
    assert fitted(POINTS.where(np.arange(6)), HOFFMANN, draws=5, seed=0).held_out is None


def test_a_law_of_size_alone_is_held_out_by_size() -> None:
    form = form_named("kaplan-size")
    found = fitted(drawn(known_law("kaplan-size"), 30, 0, 0.01), form, draws=20, seed=0)
    assert found.held_out is not None
    assert np.sum(extents(found.fit.points, form) >= found.held_out.below) == found.held_out.count == 6


def test_too_few_points_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="2 points are left to fit; the law hoffmann needs at least 6"):
        fitted(POINTS, HOFFMANN, drop=48, draws=5, seed=0)
    one_size = POINTS.where(np.array([0] * 8))
    with pytest.raises(UsageError, match="of several sizes"):
        fitted(one_size, HOFFMANN, draws=5, seed=0)


def test_results_repeat_for_a_seed() -> None:
    once, again = (fitted(POINTS, HOFFMANN, draws=10, seed=3, profile="laplace") for _ in range(2))
    assert once.intervals == again.intervals
    assert once.profile == again.profile
    assert once.held_out == again.held_out


def test_a_cut_above_all_points_is_refused() -> None:
    points = drawn(known_law("hoffmann"), 20, 0, 0.01)
    with pytest.raises(UsageError, match="nothing tests the law; give a lower cut"):
        scaling.fit(points, below_flops=1e40, draws=20)
