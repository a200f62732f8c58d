import math
import random

import pytest
from scipy import stats

from assay.analysis.effects import exact, loss, timed


def test_hand_computed_change_and_interval() -> None:
    # log ratios 0, 0.1, 0.2, 0.3, 0.4: mean 0.2, s = sqrt(0.025), t(4, 97.5 %) = 2.7764451
    pairs = [(1.0, math.exp(0.1 * k)) for k in range(5)]
    effect = timed(pairs)
    assert effect is not None
    half = 2.7764451051977987 * math.sqrt(0.025) / math.sqrt(5)
    assert effect.change == pytest.approx(math.exp(0.2) - 1)
    assert effect.interval == pytest.approx((math.exp(0.2 - half) - 1, math.exp(0.2 + half) - 1))
    assert effect.pairs == 5


def test_interval_is_scipys() -> None:
    rng = random.Random(3)
    pairs = [(rng.uniform(0.9, 1.1), rng.uniform(1.0, 1.3)) for _ in range(11)]
    ratios = [math.log(after / before) for before, after in pairs]
    expected = stats.t.interval(0.95, 10, loc=sum(ratios) / 11, scale=stats.sem(ratios))
    effect = timed(pairs)
    assert effect is not None
    assert effect.interval == pytest.approx(tuple(math.exp(end) - 1 for end in expected))


def test_fewer_than_five_pairs_have_no_interval() -> None:
    effect = timed([(2.0, 1.0)] * 4)
    assert effect is not None
    assert effect.change == pytest.approx(-0.5)
    assert effect.interval is None


def test_doubling_undoes_halving() -> None:
    effect = timed([(1.0, 2.0), (2.0, 1.0)])
    assert effect is not None
    assert effect.change == pytest.approx(0.0)


@pytest.mark.parametrize("measure", [timed, exact, loss])
def test_nothing_to_compare(measure: object) -> None:
    assert measure([]) is None  # type: ignore[operator]


def test_pairs_without_a_positive_value_do_not_count() -> None:
    effect = timed([(0.0, 1.0), (1.0, 1.5)])
    assert effect is not None
    assert (effect.pairs, effect.change) == (1, pytest.approx(0.5))


def test_interval_covers_the_true_change_as_often_as_it_says() -> None:
    rng = random.Random(20)
    truth, trials, covered = 0.05, 2000, 0
    for _ in range(trials):
        drift = [rng.gauss(0, 0.2) for _ in range(10)]  # shared by the two of a pair, so it cancels
        pairs = [
            (math.exp(shared + rng.gauss(0, 0.02)), (1 + truth) * math.exp(shared + rng.gauss(0, 0.02)))
            for shared in drift
        ]
        effect = timed(pairs)
        assert effect is not None
        assert effect.interval is not None
        covered += effect.interval[0] <= truth <= effect.interval[1]
    # three standard errors of a binomial proportion around 95 %
    assert abs(covered / trials - 0.95) < 3 * math.sqrt(0.95 * 0.05 / trials)


def test_exact_quantities_need_no_interval() -> None:
    effect = exact([(1000, 750), (1000, 750)])
    assert effect is not None
    assert (effect.change, effect.interval) == (-0.25, None)


def test_exact_quantities_that_vary_give_their_range() -> None:
    effect = exact([(1000, 750), (1000, 800)])
    assert effect is not None
    assert effect.interval == pytest.approx((-0.25, -0.2))


def test_two_seeds_of_a_loss_have_no_interval_and_three_do() -> None:
    two = loss([(2.0, 2.1), (2.2, 2.2)])
    three = loss([(2.0, 2.1), (2.2, 2.2), (1.8, 2.0)])
    assert two is not None
    assert three is not None
    assert two.interval is None
    assert two.change == pytest.approx(0.05 / 2.1)
    expected = stats.t.interval(0.95, 2, loc=0.1, scale=stats.sem([0.1, 0.0, 0.2]))
    assert three.change == pytest.approx(0.1 / 2.0)
    assert three.interval == pytest.approx(tuple(end / 2.0 for end in expected))


def test_a_loss_that_is_not_finite_does_not_count() -> None:
    effect = loss([(2.0, math.inf), (2.0, 2.1)])
    assert effect is not None
    assert (effect.pairs, effect.change) == (1, pytest.approx(0.05))
