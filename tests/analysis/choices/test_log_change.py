from math import exp, hypot, log

import numpy as np
import pytest

from assay.analysis.choices.log_change import LogChange, log_change
from assay.analysis.comparison import analyse
from assay.analysis.intervals import Design
from assay.analysis.metrics import metrics
from support.comparisons import TREATMENTS, record


def test_a_change_is_told_from_zero_only_outside_its_half_width() -> None:
    assert [LogChange(-0.2, half).sign for half in (0.1, 0.2, None, 0.0)] == [-1, 0, 0, -1]
    assert LogChange(0.0, 0.0).sign == 0
    assert LogChange(log(1.1), log(1.1) / 2).fraction == pytest.approx(0.1)


def test_two_rows_differ_by_the_difference_of_their_changes_with_both_widths() -> None:
    found = LogChange(-0.2, 0.03).since(LogChange(-0.1, 0.04))
    assert found.log == pytest.approx(-0.1)
    assert found.half == pytest.approx(hypot(0.03, 0.04))
    assert LogChange(-0.2, 0.03).since(LogChange(-0.1, None)).half is None


def test_a_row_has_the_change_and_interval_that_its_table_prints() -> None:
    comparison, metric = analyse(record(seeds=3)), metrics()["step_seconds"]
    effect = comparison.rows[0].effects[metric.name]
    change = log_change(comparison.rows[0], metric)
    assert change is not None
    assert change.fraction == pytest.approx(effect.change)
    assert change.interval == pytest.approx(effect.interval)
    assert log_change(comparison.baseline, metric) == LogChange(0.0, 0.0)


def test_an_exact_metric_has_no_width() -> None:
    comparison = analyse(record(seeds=3, treatments=TREATMENTS[:1]))
    change = log_change(comparison.rows[0], metrics()["tensors_peak_bytes"])
    assert change is not None
    assert exp(change.log) == pytest.approx(0.72, rel=1e-6)
    assert (change.half, change.interval) == (0.0, None)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_rows_without_effects_are_told_apart_in_fewer_than_one_comparison_of_twenty(count: int) -> None:
    rows, blocks = [0, *range(count + 1)] * 3, [block for block in range(3) for _ in range(count + 2)]
    values = np.random.default_rng(count).normal(0, 0.02, (1000, len(rows)))
    found = Design(rows, blocks).differences(values)
    apart = np.abs(found.change[:, :, None] - found.change[:, None, :])
    widths = np.hypot(found.half_width[:, :, None], found.half_width[:, None, :])
    some = (apart > widths).any(axis=(1, 2))
    assert some.mean() <= 0.05
