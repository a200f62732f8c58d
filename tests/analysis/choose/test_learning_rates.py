import random
from collections.abc import Mapping
from math import log
from typing import Any

import pytest

from assay.analysis.choose.series import RateSeries, learning_rates
from assay.analysis.comparison import analyse
from support.comparisons import record
from support.swept import Figures, cut_short, factorial_record

RATES = [1e-3, 1e-4, 3e-4, 3e-3, 1e-2]


def of(levels: Mapping[str, str]) -> Figures:
    """A parabola over the logarithm with its lowest point at 1e-3 for a batch of 8, and beyond the grid for 32."""
    rate, batch = float(levels["training.learning_rate"]), int(levels.get("training.batch_size", 8))
    if rate > 5e-3 and batch == 8:
        return 1, 1, None
    return 1, 1, 2.3 + 0.001 * log(rate / (1e-3 if batch == 8 else 0.05)) ** 2


def series(vary: dict[str, list[float]], **fields: Any) -> tuple[RateSeries, ...]:
    return learning_rates(analyse(factorial_record(vary, of, noise=0.0, **fields)))


def test_each_batch_size_has_its_best_rate_and_range() -> None:
    small, large = series({"training.batch_size": [8, 32], "training.learning_rate": RATES})
    assert (small.batch_size, large.batch_size) == (8, 32)
    assert [one.rate for one in small.rates] == sorted(RATES)
    assert small.best is not None
    assert (small.best.rate, small.best.seeds) == (1e-3, 3)
    assert small.best.loss == pytest.approx(2.306)
    assert [one.rate for one in small.good] == [1e-4, 3e-4, 1e-3, 3e-3]
    assert [one.rate for one in small.rates if one.diverged] == [1e-2]
    assert (small.open_ended, large.open_ended) == ("", "higher")
    assert large.best is not None
    assert large.best.rate == 1e-2
    assert [one.rate for one in large.good] == [3e-3, 1e-2]


def test_a_smaller_margin_gives_a_narrower_range_which_ends_at_the_first_worse_rate() -> None:
    (found,) = series({"training.learning_rate": RATES}, loss_margin=0.002)
    assert [one.rate for one in found.good] == [3e-4, 1e-3, 3e-3]


def test_other_factors_divide_series_and_a_study_of_other_factors_has_none() -> None:
    vary = {"training.learning_rate": RATES[:2], "training.weight_decay": [0.1, 0.2]}
    assert [one.others for one in series(vary)] == ["training.weight_decay=0.1", "training.weight_decay=0.2"]
    assert learning_rates(analyse(record())) == ()


def test_the_order_of_cells_does_not_matter() -> None:
    whole = factorial_record({"training.learning_rate": RATES}, of)
    cells = list(whole.cells)
    random.Random(0).shuffle(cells)
    (one,), (other,) = (
        learning_rates(analyse(each)) for each in (whole, whole.model_copy(update={"cells": tuple(cells)}))
    )
    assert [rate.loss for rate in one.rates[:-1]] == pytest.approx([rate.loss for rate in other.rates[:-1]])
    assert [rate.rate for rate in one.good] == [rate.rate for rate in other.good]


def test_rates_are_compared_at_the_seeds_that_they_share() -> None:
    """Losses grow from seed to seed, so a rate that ran at the first one only would look better than it is."""
    name = "training.learning_rate=0.0001"
    whole = factorial_record({"training.learning_rate": RATES[:2]}, of, noise=0.0)
    (found,) = learning_rates(analyse(cut_short(whole, (name, 0), ("", 1), ("", 2))))
    assert [one.seeds for one in found.rates] == [1, 1]
    assert found.best is not None
    assert (found.best.rate, found.best.loss) == (1e-3, pytest.approx(2.3))
    assert len(found.good) == 2
