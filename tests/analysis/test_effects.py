import math

import pytest
from scipy import stats

from assay.analysis.effects import exact, loss
from assay.analysis.typical import EQUAL, SKEWED


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
