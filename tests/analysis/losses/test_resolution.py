import random
from statistics import fmean

import pytest
from scipy import stats

from assay.analysis.comparison import analyse
from assay.analysis.effects import Effect, loss
from assay.analysis.losses.resolution import loss_resolution
from assay.analysis.typical import SKEWED
from support.comparisons import TREATMENTS, record
from support.factorials import compared

SEEDS = 5


def effect(chance: random.Random, change: float = 0.0) -> Effect:
    """A row whose losses at five seeds differ from the baseline's by one hundredth, beside the change."""
    pairs = [(1.0, 1.0 + change + chance.gauss(0, 0.01)) for _ in range(SEEDS)]
    found = loss([[pair] for pair in pairs], comparisons=2)
    assert found is not None
    return found


def test_it_is_the_half_width_of_an_interval_and_adds_the_power_of_students_test() -> None:
    one = effect(random.Random(1))
    found = loss_resolution([one], 2)
    assert found is not None
    assert one.interval is not None
    assert found.told == pytest.approx((one.interval[1] - one.interval[0]) / 2)
    critical, power = stats.t.ppf(1 - 0.05 / 4 / SKEWED, SEEDS - 1), stats.t.ppf(0.8, SEEDS - 1)
    assert found.likely / found.told == pytest.approx(1 + power / critical)
    assert found.degrees == SEEDS - 1
    assert found.told == pytest.approx(critical * found.deviation / SEEDS**0.5)


def test_a_true_change_of_the_likely_size_is_found_in_four_of_five() -> None:
    chance = random.Random(7)
    likely = [found.likely for _ in range(400) if (found := loss_resolution([effect(chance)], 2))]
    seen = [effect(chance, fmean(likely)) for _ in range(1000)]
    found = fmean(one.interval is not None and one.interval[0] > 0 for one in seen)
    assert 0.72 < found < 0.88


def test_the_typical_row_counts_and_rows_without_chance_do_not() -> None:
    wide, narrow, usual = (Effect(change=0.0, interval=(-half, half), pairs=3) for half in (0.5, 0.01, 0.1))
    equal = Effect(change=0.0, interval=(0.0, 0.0), pairs=3, equal=True)
    unbounded = Effect(change=0.1, interval=None, pairs=2)
    found = loss_resolution([wide, equal, narrow, unbounded, usual], 3)
    assert found is not None
    assert found.told == pytest.approx(0.1)
    assert loss_resolution([equal, unbounded], 3) is None


def test_a_comparison_of_three_seeds_has_it_and_one_of_two_has_not() -> None:
    rows = [{"a": "0"}, {"a": "1"}]
    three = compared(rows, lambda levels: (1.0, 1.0, 1.0), apart=0.01)
    assert three.resolution["val_loss"].degrees == 2
    assert three.to_json()["smallest_change"]["val_loss"]["told"] > 0
    assert "val_loss" not in analyse(record(seeds=2, treatments=TREATMENTS[:1])).resolution
