"""Intervals of several treatments: against scipy, against hand-made designs, and over simulated families."""

import numpy as np
import pytest
from scipy import stats

from assay.analysis.intervals import Design, critical_value


def design(treatments: int, blocks: int) -> tuple[Design, np.ndarray]:
    """The baseline twice and every treatment once in each block, and the row of each observation."""
    rows = [0, 0, *range(1, treatments + 1)] * blocks
    return Design(rows, np.repeat(np.arange(blocks), treatments + 2)), np.array(rows)


@pytest.mark.parametrize(
    ("count", "correlation", "degrees"), [(5, 0.5, 10), (5, 1 / 3, 13), (2, 0.5, 5), (3, 0.0, 4), (2, 1 / 3, 2)]
)
def test_the_factor_is_that_of_a_multivariate_t(count: int, correlation: float, degrees: int) -> None:
    shape = np.full((count, count), correlation) + (1 - correlation) * np.eye(count)
    bound = np.full(count, critical_value(count, correlation, degrees))
    inside = stats.multivariate_t(shape=shape, df=degrees).cdf(bound, lower_limit=-bound, random_state=1)
    assert inside == pytest.approx(0.95, abs=5e-4)


def test_the_factor_is_dunnetts() -> None:
    # Dunnett (1964), two-sided 5 %: 2 and 5 treatments, one baseline of equal size
    assert critical_value(2, 0.5, 10) == pytest.approx(2.57, abs=0.005)
    assert critical_value(5, 0.5, 20) == pytest.approx(2.77, abs=0.04)


def test_one_treatment_has_students_factor() -> None:
    assert critical_value(1, 0.0, 7) == pytest.approx(stats.t.ppf(0.975, 7))


def test_one_degree_of_freedom_gives_no_interval() -> None:
    made, _ = design(3, 1)
    found = made.differences(np.array([0.0, 0.01, 0.1, 0.2, 0.3]))
    assert found.pooled_degrees == 1
    assert np.isnan(found.half_width).all()
    assert not found.differs.any()
    assert found.change == pytest.approx([0.095, 0.195, 0.295])


def test_it_is_students_interval_of_one_treatment_by_hand() -> None:
    # log times: baselines (0, 2), (1, 1), (2, 4); treatment 5.1, 5, 6.9; so differences to the means are 4.1, 4, 3.9
    found = design(1, 3)[0].differences(np.array([0.0, 2, 5.1, 1, 1, 5, 2, 4, 6.9]))
    squares = (2.0**2 + 0 + 2.0**2) / 2 + (2 / 3) * np.var([4.1, 4, 3.9]) * 3
    deviation = np.sqrt(squares / 5)
    assert found.change == pytest.approx([4.0])
    assert found.pooled_degrees == 5
    assert found.deviation == pytest.approx(deviation)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 5) * deviation * np.sqrt(1 / 6 + 1 / 3), rel=1e-4)


def test_a_row_that_deviates_more_is_in_part_judged_by_itself_by_hand() -> None:
    # baselines (0, 2), (1, 1), (2, 4); differences to their means 2, 4, 6, whose deviation is 2
    found = design(1, 3)[0].differences(np.array([0.0, 2, 3, 1, 1, 5, 2, 4, 9]))
    within, between = (2.0**2 + 2.0**2) / 2, (2 / 3) * 8.0
    chance = stats.f.sf(2.0**2 / (1.5 * within / 3), 2, 3)
    part = np.log(2 / chance) / np.log(2 / 0.05)
    pooled, own = np.sqrt((within + between) / 5 / 2), 2 / np.sqrt(3)
    degrees = 1 / ((1 - part) / 5 + part / 2)
    assert 0.1 < part < 0.9
    assert found.error == pytest.approx([pooled ** (1 - part) * own**part])
    assert found.degrees == pytest.approx([degrees])
    assert stats.t.ppf(0.975, 3) < found.critical[0] < stats.t.ppf(0.975, 2)
    assert found.critical == pytest.approx([stats.t.ppf(0.975, degrees)], rel=0.01)


def test_equal_values_deviate_by_their_rounding() -> None:
    found = design(1, 3)[0].differences(np.array([0.0, 0, 0.01, 0, 0, 0.01, 0, 0, 0.01]))
    assert found.deviation == pytest.approx(0.01 / np.sqrt(12))
    assert found.error == pytest.approx(0.01 / np.sqrt(12) * np.sqrt(0.5))
    assert 0.005 < found.half_width[0] < 0.006
    nothing = design(1, 3)[0].differences(np.full(9, 0.3))
    assert not nothing.differs.any()
    assert nothing.half_width == pytest.approx([0.0])


@pytest.mark.parametrize(("treatments", "blocks"), [(1, 3), (5, 3), (3, 6)])
@pytest.mark.parametrize("factor", [2.0, 3.0, 10.0])
def test_a_row_that_deviates_more_seldom_differs(treatments: int, blocks: int, factor: float) -> None:
    made, rows = design(treatments, blocks)
    families = 6000
    values = np.random.default_rng(3).normal(size=(families, len(rows))) * np.where(rows == 1, factor, 1.0)
    # two points above 5 %, and three standard errors
    assert made.differences(values).differs.any(axis=-1).mean() < 0.07 + 3 * np.sqrt(0.07 * 0.93 / families)


@pytest.mark.parametrize("step", [1.0, 2.0, 5.0])
def test_rounded_values_seldom_differ(step: float) -> None:
    made, rows = design(5, 3)
    chance = np.random.default_rng(4)
    values = chance.normal(size=(4000, len(rows))) / step + chance.random((4000, 1))
    assert made.differences(np.round(values)).differs.any(axis=-1).mean() < 0.05


def test_a_share_that_all_rows_of_a_block_have_cancels() -> None:
    made, rows = design(2, 3)
    values = np.random.default_rng(0).normal(size=len(rows))
    slow = values + np.repeat([0.0, 5.0, -3.0], 4)
    one, other = made.differences(values), made.differences(slow)
    assert one.change == pytest.approx(other.change)
    assert one.half_width == pytest.approx(other.half_width)


def test_blocks_may_lack_rows_and_a_row_without_a_baseline_is_not_known() -> None:
    whole = Design([0, 1, 0, 2, 0, 1, 0, 2], [0, 0, 1, 1, 2, 2, 3, 3])
    assert whole.differences(np.array([0.0, 1, 5, 7, 1, 2, 6, 8])).change == pytest.approx([1.0, 2.0])
    found = Design([0, 1, 0, 1, 2, 2], [0, 0, 1, 1, 2, 3]).differences(np.arange(6.0))
    assert np.isnan(found.change[1])
    assert found.change[0] == pytest.approx(1.0)


def test_a_row_that_deviates_far_more_is_judged_by_itself_and_hides_nothing() -> None:
    made, rows = design(5, 4)
    rng = np.random.default_rng(3)
    values = rng.normal(0, 0.01, len(rows)) + np.where(rows == 2, 0.06, 0.0)
    values[rows == 1] += np.array([0.5, -0.5, 0.4, -0.4])
    found = made.differences(values)
    assert list(found.apart) == [True, False, False, False, False]
    assert list(found.differs) == [False, True, False, False, False]
    assert found.deviation < 0.015


@pytest.mark.parametrize(("treatments", "blocks"), [(1, 3), (5, 3), (3, 4)])
def test_families_without_an_effect_differ_in_five_percent(treatments: int, blocks: int) -> None:
    made, rows = design(treatments, blocks)
    families = 4000
    found = made.differences(np.random.default_rng(11).normal(size=(families, len(rows))))
    # three standard errors of a binomial proportion above 5 %
    assert 0.03 < found.differs.any(axis=-1).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / families)


def test_the_likely_change_is_told_in_four_of_five() -> None:
    made, rows = design(3, 4)
    values = np.random.default_rng(5).normal(size=(4000, len(rows)))
    usual = made.differences(values).likely.mean()
    told = made.differences(values + np.where(rows == 2, usual, 0.0)).differs[:, 1].mean()
    assert told == pytest.approx(0.8, abs=0.05)


def test_the_chance_of_each_row_is_that_of_a_fit_without_it() -> None:
    from scipy.special import fdtrc

    draws = np.random.default_rng(5)
    for _ in range(60):
        rows, blocks = draws.integers(1, 6), draws.integers(2, 6)
        places = [(row, block) for row in (0, 0, *range(1, rows + 1)) for block in range(blocks)]
        seen = [place for place in places for _ in range(draws.integers(0, 3))]
        design = Design([row for row, _ in seen], [block for _, block in seen])
        values = draws.normal(size=(3, len(seen)))
        found = design._chances(values, np.zeros(3))
        for row in range(1, design.count + 1):
            own, others = design._by_block(values, row), design._fit(values, design._rows != row)
            if own.shape[-1] <= 2 or others.degrees < 2:
                continue
            share = own.var(axis=-1, ddof=1) / (others.variance * design._expected(row))
            assert found[:, row - 1] == pytest.approx(fdtrc(own.shape[-1] - 1, others.degrees, share), rel=1e-7)
