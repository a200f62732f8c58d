"""Criteria: changes on the log scale, and losses that are the same within a margin."""

import random
from math import exp, hypot, log
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import t

from assay.analysis.choose.criteria import (
    LogChange,
    LossVerdict,
    log_change,
    loss_difference,
    loss_differences,
    loss_verdict,
)
from assay.analysis.comparison import analyse
from assay.analysis.effects import loss
from assay.analysis.intervals import Design
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import VAL_LOSS
from support.comparisons import FACTORS, TREATMENTS, record
from support.swept import factorial_record


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


def test_a_loss_keeps_its_own_interval_which_is_not_even_on_the_log_scale() -> None:
    factors = {**FACTORS, "sdpa_attention": (0.72, 0.88, 0.6, 0.3)}
    comparison, metric = analyse(record(seeds=3, factors=factors, treatments=TREATMENTS[:1])), VAL_LOSS
    effect = comparison.rows[0].effects[metric.name]
    change = log_change(comparison.rows[0], metric)
    assert change is not None
    assert effect.interval is not None
    assert change.interval == pytest.approx(effect.interval)
    assert change.half == pytest.approx(max(abs(log(1 + end) - change.log) for end in effect.interval))
    assert change.since(LogChange(0.0, 0.0)).interval == change.interval, "the control has changed by nothing"
    assert change.shifted(0.1).ends == pytest.approx([log(1 + end) + 0.1 for end in effect.interval])
    assert change.since(LogChange(0.1, 0.1)).ends is None


@pytest.mark.parametrize(("ends", "sign"), [((-0.3, -0.01), -1), ((-0.3, 0.01), 0), ((0.01, 0.3), 1)])
def test_a_change_is_told_from_zero_by_its_own_interval(ends: tuple[float, float], sign: int) -> None:
    middle = sum(ends) / 3
    assert LogChange(middle, max(abs(end - middle) for end in ends), ends).sign == sign


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


@pytest.mark.parametrize(
    ("nats", "half", "verdict"),
    [
        (0.0, 0.009, "same"),
        (0.005, 0.005, "same"),
        (0.005, 0.006, "not shown"),
        (-0.02, 0.005, "better"),
        (-0.02, 0.02, "no worse"),
        (0.02, 0.005, "worse"),
        (0.02, 0.01, "not shown"),
        (0.0, None, "not shown"),
    ],
)
def test_the_whole_interval_decides(nats: float, half: float | None, verdict: str) -> None:
    assert loss_verdict(nats, half, 0.01) == verdict


def test_a_difference_is_students_interval_of_the_seeds_in_nats() -> None:
    whole = factorial_record({"optimizations": ["none", "lion"]}, lambda levels: (1, 1, 2.4), seeds=4, noise=0.01)
    losses = {
        (one.cell.treatment, one.cell.seed): one.result.val_loss
        for one in whole.cells
        if one.result.val_loss is not None
    }
    apart = [losses["lion", seed] - losses["baseline", seed] for seed in whole.seeds]
    found = loss_differences(analyse(whole))["lion"]
    assert found.nats == pytest.approx(fmean(apart))
    assert found.half == pytest.approx(t.ppf(0.975, 3) * stdev(apart) / 2)


def test_bit_equal_losses_are_as_good_even_with_one_seed_and_others_are_not_shown() -> None:
    found = loss_differences(analyse(record(seeds=1)))
    assert found["activation_checkpointing"].verdict is LossVerdict.EQUAL
    assert found["bf16_mixed"].verdict is LossVerdict.UNKNOWN
    assert not found["bf16_mixed"].verdict.as_good


def test_a_missing_loss_gives_no_difference() -> None:
    without = record(seeds=3, treatments=TREATMENTS[:1], changes={TREATMENTS[0]: {"val_loss": None}})
    comparison = analyse(without)
    assert loss_difference(comparison, comparison.rows[0]) is None


def test_a_loss_worse_than_the_margin_is_called_as_good_in_at_most_one_comparison_of_forty() -> None:
    rng, margin, draws, wrong = random.Random(0), 0.01, 2000, 0
    for _ in range(draws):
        seeds = [rng.gauss(2.4, 0.01) for _ in range(4)]
        effect = loss([[(one, one + margin + rng.gauss(0, 0.003))] for one in seeds])
        assert effect is not None
        assert effect.interval is not None
        nats, half = effect.change * fmean(seeds), (effect.interval[1] - effect.interval[0]) / 2 * fmean(seeds)
        wrong += loss_verdict(nats, half, margin).as_good
    assert wrong / draws <= 0.025 + 3 * (0.025 * 0.975 / draws) ** 0.5
