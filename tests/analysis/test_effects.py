"""Changes and their intervals: the typical difference by hand and against scipy, and what is more than noise."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from assay.analysis.effects import (
    EQUAL,
    FEW,
    SKEWED,
    WHOLE,
    Effect,
    Verdict,
    exact,
    judge_exact,
    judge_sampled,
    left_out,
    loss,
    typical,
)

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


@pytest.mark.parametrize("count", [3, 5, 16, *(pytest.param(one, marks=pytest.mark.slow) for one in (10, 50))])
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


@pytest.mark.parametrize("measure", [exact, loss])
def test_nothing_to_compare(measure: object) -> None:
    assert measure([]) is None  # type: ignore[operator]


def test_exact_quantities_need_no_interval() -> None:
    effect = exact([(1000, 750), (1000, 750)])
    assert effect is not None
    assert (effect.change, effect.interval, effect.equal) == (-0.25, None, False)


def test_exact_quantities_that_vary_give_their_range() -> None:
    effect = exact([(1000, 750), (1000, 800)])
    assert effect is not None
    assert effect.interval == pytest.approx((-0.25, -0.2))


def test_two_seeds_of_a_loss_have_no_interval_and_three_do() -> None:
    two = loss([[(2.0, 2.1)], [(2.2, 2.2)]])
    three = loss([[(2.0, 2.1)], [(2.2, 2.2)], [(1.8, 2.0)]])
    assert two is not None
    assert three is not None
    assert two.interval is None
    assert two.change == pytest.approx(0.05 / 2.1)
    expected = stats.t.interval(0.95, 2, loc=0.1, scale=stats.sem([0.1, 0.0, 0.2]))
    assert three.change == pytest.approx(0.1 / 2.0)
    assert three.interval == pytest.approx(tuple(end / 2.0 for end in expected))


def test_the_interval_of_several_comparisons_is_bonferronis() -> None:
    pairs = [[(2.0, 2.1)], [(2.2, 2.2)], [(1.8, 2.0)]]
    effect = loss(pairs, comparisons=5)
    assert effect is not None
    expected = stats.t.interval(1 - 0.01 / SKEWED, 2, loc=0.1, scale=stats.sem([0.1, 0.0, 0.2]))
    assert effect.interval == pytest.approx(tuple(end / 2.0 for end in expected))


def test_several_processes_of_a_seed_count_once() -> None:
    once = loss([[(2.0, 2.1)], [(2.2, 2.2)], [(1.8, 2.0)]])
    often = loss([[(2.0, 2.1)] * 4, [(2.2, 2.2)], [(1.8, 1.9), (1.8, 2.1)]])
    assert once is not None
    assert often is not None
    assert (often.pairs, often.change) == (3, pytest.approx(once.change))
    assert often.interval == pytest.approx(once.interval)


def test_equal_means_that_every_pair_is() -> None:
    same = loss([[(2.0, 2.0)], [(2.5, 2.5), (2.5, 2.5)]])
    cancelling = loss([[(2.0, 2.5)], [(2.5, 2.0)]])
    within_a_seed = loss([[(2.0, 2.0)], [(2.5, 2.75), (2.5, 2.25)]])
    assert same is not None
    assert cancelling is not None
    assert within_a_seed is not None
    assert (same.equal, cancelling.equal, within_a_seed.equal) == (True, False, False)
    assert cancelling.change == within_a_seed.change == 0.0


def test_bytes_that_cancel_are_not_equal() -> None:
    effect = exact([(1000, 1100), (1000, 900)])
    assert effect is not None
    assert effect.change == pytest.approx(0.0)
    assert not effect.equal


def test_a_loss_of_zero_has_no_relative_change() -> None:
    assert loss([[(0.0, 0.1)], [(0.0, 0.2)], [(0.0, 0.3)]]) is None
    assert loss([]) is None


def test_a_loss_that_is_not_finite_does_not_count_and_is_not_equal() -> None:
    effect = loss([[(2.0, math.inf)], [(2.0, 2.1)]])
    assert effect is not None
    assert (effect.pairs, effect.change) == (1, pytest.approx(0.05))
    diverged = loss([[(2.0, math.inf)], [(2.0, 2.0)]])
    assert diverged is not None
    assert not diverged.equal


def test_differences_that_are_equal_at_all_seeds_have_no_interval_and_a_reason() -> None:
    effect = loss([[(2.0, 2.1)], [(2.2, 2.3)], [(1.8, 1.9)]])
    assert effect is not None
    assert (effect.interval, effect.untold) == (None, EQUAL)
    assert effect.change == pytest.approx(0.05)


def test_one_seed_far_off_does_not_decide_for_fifty() -> None:
    """Forty-nine seeds are a little better, and one is so much worse that the mean is no better at all."""
    differences = [-0.01 + 0.002 * (at % 5 - 2) for at in range(49)] + [0.49]
    effect = loss([[(2.0, 2.0 + one)] for one in differences])
    assert effect is not None
    assert effect.interval is not None
    assert effect.interval[1] < 0


def effect(change: float, low: float | None = None, high: float | None = None, *, equal: bool = False) -> Effect:
    interval = None if low is None or high is None else (low, high)
    return Effect(change=change, interval=interval, pairs=10 if interval else 2, equal=equal)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (effect(-0.12, -0.13, -0.11), Verdict.DIFFERS),
        (effect(0.30, 0.28, 0.32), Verdict.DIFFERS),
        (effect(0.001, 0.0005, 0.0015), Verdict.DIFFERS),
        (effect(0.05, -0.01, 0.11), Verdict.NOT_DISTINGUISHABLE),
        (effect(3.0, -0.5, 30.0), Verdict.NOT_DISTINGUISHABLE),
        (effect(0.5), Verdict.TOO_FEW),
        (effect(0.0, equal=True), Verdict.EQUAL),
        (effect(0.0, 0.0, 0.0, equal=True), Verdict.EQUAL),
        (effect(0.0), Verdict.TOO_FEW),  # two seeds that cancel
        (effect(0.0, -0.1, 0.1), Verdict.NOT_DISTINGUISHABLE),
    ],
)
def test_verdicts_on_sampled_quantities(measured: Effect, verdict: Verdict) -> None:
    assert judge_sampled(measured) is verdict


def test_the_same_run_is_never_said_to_differ() -> None:
    assert judge_sampled(effect(0.12, 0.11, 0.13), same=True) is Verdict.NOT_DISTINGUISHABLE
    assert judge_sampled(effect(0.0, equal=True), same=True) is Verdict.EQUAL


def test_verdicts_on_exact_quantities() -> None:
    still, restless = effect(0.0, equal=True), effect(0.01)
    assert judge_exact(effect(-0.0001), still) is Verdict.DIFFERS
    assert judge_exact(still, restless) is Verdict.EQUAL
    assert judge_exact(effect(0.0, -0.1, 0.1), still) is Verdict.DIFFERS  # seeds that cancel
    assert judge_exact(effect(0.005), restless) is Verdict.NOT_DISTINGUISHABLE
    assert judge_exact(effect(0.05), restless) is Verdict.DIFFERS
    assert judge_exact(effect(-0.0001), None) is Verdict.DIFFERS


def test_only_a_difference_is_distinguishable() -> None:
    assert [verdict for verdict in Verdict if verdict.distinguishable] == [Verdict.DIFFERS]


def test_an_interval_that_is_missing_for_a_reason_is_not_too_few() -> None:
    untold = Effect(change=0.1, interval=None, pairs=3, untold="a reason")
    assert judge_sampled(untold) is Verdict.UNTOLD
    assert judge_sampled(untold, same=True) is Verdict.NOT_DISTINGUISHABLE
