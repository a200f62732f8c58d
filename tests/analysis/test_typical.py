"""The typical difference: against scipy, by hand, and how often its interval holds the median of all seeds."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from assay.analysis.typical import EQUAL, FEW, SKEWED, WHOLE, left_out, typical

DRAWS = 2000
DIFFERENCES: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda chance, count: chance.normal(size=(DRAWS, count)), 0.0),
    "t with three degrees": (lambda chance, count: chance.standard_t(3, size=(DRAWS, count)), 0.0),
    "lognormal": (lambda chance, count: chance.lognormal(size=(DRAWS, count)), 1.0),
    "exponential": (lambda chance, count: chance.exponential(size=(DRAWS, count)), float(np.log(2))),
    "one in fifty is ten deviations off": (
        lambda chance, count: chance.normal(size=(DRAWS, count)) + 10 * (chance.random((DRAWS, count)) < 0.02),
        float(stats.norm.ppf(0.5 / 0.98)),
    ),
}
"""Differences of seeds, and their median."""


def covered(values: np.ndarray, median: float) -> float:
    found = [typical(one, 1) for one in values.tolist()]
    return float(np.mean([one.half is not None and abs(one.middle - median) <= one.half for one in found]))


@pytest.mark.parametrize("count", [3, 5, 10, 16, 50])
@pytest.mark.parametrize("name", list(DIFFERENCES))
def test_the_median_of_all_seeds_is_in_its_interval_within_two_points_of_the_nominal_rate(
    name: str, count: int
) -> None:
    draw, median = DIFFERENCES[name]
    share = covered(draw(np.random.default_rng(count), count), median)
    assert 0.93 - 3 * np.sqrt(0.93 * 0.07 / DRAWS) < share < 0.97 + 3 * np.sqrt(0.97 * 0.03 / DRAWS)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_five_rows_of_skewed_differences_hold_together(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=(5 * DRAWS, count)).tolist()
    found = [typical(one, 5) for one in values]
    wrong = np.array([one.half is not None and abs(one.middle - np.log(2)) > one.half for one in found])
    share = wrong.reshape(DRAWS, 5).any(axis=1).mean()
    assert share < 0.07 + 3 * np.sqrt(0.07 * 0.93 / DRAWS)


def test_the_mean_of_rare_outliers_is_not_what_it_tells() -> None:
    """No interval of few seeds holds a mean that most samples have no sign of."""
    chance = np.random.default_rng(1)
    values = np.where(chance.random((DRAWS, 5)) < 0.02, -49.0, 1.0) + chance.normal(0, 0.1, (DRAWS, 5))
    assert covered(values, 1.0) > 0.93
    assert covered(values, 0.0) < 0.2


@pytest.mark.parametrize("count", [3, FEW, WHOLE])
def test_few_seeds_have_students_interval(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count).tolist()
    found = typical(values, 1)
    assert found.middle == pytest.approx(np.mean(values))
    assert found.half == pytest.approx(stats.t.ppf(0.975, count - 1) * stats.sem(values))


def test_one_of_several_comparisons_has_bonferronis_level_and_less_for_few_seeds() -> None:
    for count, level in ((FEW, 0.05 / 3 / SKEWED), (FEW + 1, 0.05 / 3)):
        values = np.random.default_rng(0).normal(size=count).tolist()
        assert typical(values, 3).half == pytest.approx(stats.t.ppf(1 - level / 2, count - 1) * stats.sem(values))


@pytest.mark.parametrize("count", [11, 20, 50])
def test_many_seeds_have_the_interval_of_scipys_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    out = left_out(count)
    found = typical(values.tolist(), 1)
    against = stats.ttest_ind(values, np.zeros(count), equal_var=False, trim=out / count)
    assert found.middle == pytest.approx(stats.trim_mean(values, out / count))
    assert found.half == pytest.approx(
        stats.t.ppf(0.975, count - 2 * out - 1) * abs(found.middle / against.statistic), rel=1e-6
    )


def test_a_third_of_the_seeds_beyond_ten_is_left_out_at_each_end() -> None:
    assert [left_out(count) for count in (3, 10, 11, 14, 20, 100)] == [0, 0, 1, 2, 4, 30]


@pytest.mark.parametrize("values", [[0.1] * 3, [2.1 - 2.0, 2.2 - 2.1, 1.8 - 1.7], [-0.3] * 12])
def test_equal_differences_have_no_interval_and_a_reason(values: Sequence[float]) -> None:
    found = typical(values, 1)
    assert (found.half, found.reason) == (None, EQUAL)


def test_differences_below_the_step_are_none() -> None:
    found = typical([1e-8, 2e-8, 1.5e-8], 1, step=1e-7)
    assert found.reason is None
    assert found.half == pytest.approx(stats.t.ppf(0.975, 2) * 1e-7 / np.sqrt(12) / np.sqrt(3))


def test_values_of_which_most_are_equal_deviate_by_their_rounding() -> None:
    found = typical([0.0] * 14 + [0.3, 0.6], 1)
    assert found.middle == 0.0
    assert found.half == pytest.approx(stats.t.ppf(0.975, 11) * 0.3 / np.sqrt(12) / np.sqrt(12))


def test_too_few_seeds_have_no_interval_and_no_reason() -> None:
    assert typical([0.1, 0.2], 1)[1:] == (None, None)
