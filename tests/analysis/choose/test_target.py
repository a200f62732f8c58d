import random
from collections.abc import Sequence
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy.stats import t

from assay.analysis.choose.answer import RowTarget, Targets, sustained_step, targets, trailing
from assay.analysis.comparison import analyse
from assay.analysis.effects import SKEWED, figure, rounds
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.records.status import Status
from assay.records.study import BASELINE, ComparisonRecord, Curve
from support.comparisons import TREATMENTS, record

FAST, SLOW = TREATMENTS[0], TREATMENTS[2]
Evaluations = Sequence[tuple[int, float | None]]


def evaluated(losses: Sequence[float | None], every: int = 10) -> Curve:
    return Curve(
        train_loss=(3.0,) * (every * len(losses)),
        evaluations=tuple((every * (at + 1), loss) for at, loss in enumerate(losses)),
    )


def with_curves(curves: dict[tuple[str, int], Curve], seeds: int = 3, **fields: Any) -> ComparisonRecord:
    """A record whose rows have these curves at each seed; baselines share theirs."""
    whole = record(seeds=seeds, treatments=(FAST, SLOW), **fields)
    cells = [
        one.model_copy(update={"curve": curves[one.cell.treatment.removesuffix(" (again)"), one.cell.seed]})
        for one in whole.cells
    ]
    return whole.model_copy(update={"cells": tuple(cells)})


def found_in(whole: ComparisonRecord) -> tuple[Targets, dict[str, RowTarget]]:
    found = targets(analyse(whole))
    assert found is not None
    return found, {one.row.treatment: one for one in found.rows}


DOWN = (4.0, 3.5, 3.2, 3.0, 2.9, 2.8, 2.7, 2.6)
EARLY = (3.5, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6)
BACK = (3.5, 2.5, 3.2, 2.5, 2.5, 2.5, 2.5, 2.5)
NEVER = (4.0, 3.9, 3.8, 3.7, 3.6, 3.5, 3.4, 3.3)


def curves(fast: Sequence[float], slow: Sequence[float]) -> dict[tuple[str, int], Curve]:
    each = {BASELINE: DOWN, FAST: fast, SLOW: slow}
    return {(name, seed): evaluated(losses) for name, losses in each.items() for seed in range(3)}


@pytest.mark.parametrize(
    ("losses", "target", "steps"),
    [(DOWN, 3.0, 40), (BACK, 3.0, 40), (EARLY, 2.6, 20), (NEVER, 3.0, None), (DOWN, 5.0, 10), ((4.0, inf), 5.0, None)],
)
def test_a_crossing_counts_only_if_the_loss_stays_below(
    losses: Sequence[float], target: float, steps: int | None
) -> None:
    assert sustained_step([(10 * (at + 1), loss) for at, loss in enumerate(losses)], target) == steps


def test_a_crossing_is_that_of_a_slow_reference() -> None:
    rng = random.Random(0)
    for _ in range(200):
        losses = [(step, rng.choice((1.0, 2.0, 3.0))) for step in range(1, rng.randint(2, 9))]
        good = [step for at, (step, _) in enumerate(losses) if all(loss <= 2 for _, loss in losses[at:])]
        assert sustained_step(losses, 2) == (good[0] if good else None)


def test_a_trailing_mean_covers_whole_windows_and_is_infinite_with_a_missing_loss() -> None:
    assert trailing([4.0, 2.0, None, 1.0, 3.0], 2) == [(2, 3.0), (3, inf), (4, inf), (5, 2.0)]
    losses = [random.Random(1).gauss(2, 1) for _ in range(50)]
    for end, mean in trailing(losses, 7):
        assert mean == pytest.approx(fmean(losses[end - 7 : end]))


def test_seconds_are_the_first_step_and_the_steady_ones_until_the_crossing() -> None:
    whole = with_curves(curves(EARLY, BACK), target_loss=3.0)
    found, rows = found_in(whole)
    assert (found.basis, found.resolution) == ("validation loss", 10)
    kept = rounds(whole.cells, whole.rounds)
    for one, run in zip(whole.of(FAST), rows[FAST].runs, strict=True):
        pace = figure(STEP_SECONDS, one.result, kept[one.wave])
        assert pace is not None
        assert run.seconds == pytest.approx(20 * exp(pace))
    assert [rows[name].steps for name in (BASELINE, FAST, SLOW)] == [40, 20, 40]


def test_the_ratio_is_paired_by_seed_with_students_interval() -> None:
    _, rows = found_in(with_curves(curves(EARLY, BACK), target_loss=3.0))
    logs = [
        log(a.seconds / b.seconds)
        for a, b in zip(rows[FAST].runs, rows[BASELINE].runs, strict=True)
        if a.seconds and b.seconds
    ]
    half = t.ppf(1 - 0.05 / 4 / SKEWED, 2) * stdev(logs) / sqrt(3)
    ratio = rows[FAST].ratio
    assert ratio is not None
    assert ratio.change == pytest.approx(exp(fmean(logs)) - 1)
    assert ratio.interval == pytest.approx((exp(fmean(logs) - half) - 1, exp(fmean(logs) + half) - 1))


def test_a_row_with_a_censored_run_has_no_mean_and_no_ratio() -> None:
    some = curves(EARLY, NEVER)
    some[FAST, 1] = evaluated(NEVER)
    _, rows = found_in(with_curves(some, target_loss=3.0))
    assert (rows[FAST].censored, rows[FAST].steps, rows[FAST].seconds, rows[FAST].ratio) == (1, None, None, None)
    assert rows[SLOW].censored == 3
    assert rows[SLOW].runs[0].within == 80


def test_without_a_stated_target_it_is_the_controls_last_loss_at_the_seed_plus_the_margin() -> None:
    some = curves(EARLY, [*DOWN[:-1], 2.6 + 0.0099])
    some[SLOW, 2] = evaluated([*DOWN[:-1], 2.6 + 0.0101])
    found, rows = found_in(with_curves(some))
    assert found.target is None
    assert (rows[BASELINE].censored, rows[FAST].steps) == (0, 20)
    assert [one.steps for one in rows[SLOW].runs] == [80, 80, None]


def test_few_evaluations_leave_the_training_loss_over_a_twentieth_of_the_steps() -> None:
    losses = tuple(4.0 - 0.01 * step for step in range(200))
    one = Curve(train_loss=losses, evaluations=((200, 2.0),))
    found, rows = found_in(with_curves(dict.fromkeys(curves(DOWN, DOWN), one), target_loss=3.0))
    assert (found.basis, found.resolution) == ("training loss", 10)
    assert rows[FAST].steps == next(end for end, mean in trailing(losses, 10) if mean <= 3.0)


def test_a_diverged_run_never_reaches_a_target_and_a_failed_one_does_not_count() -> None:
    changes = {FAST: {"status": Status.DIVERGED}, SLOW: {"status": Status.OUT_OF_MEMORY}}
    _, rows = found_in(with_curves(curves(EARLY, EARLY), target_loss=3.0, changes=changes))
    assert rows[FAST].censored == 3
    assert SLOW not in rows


def test_without_times_the_ratio_is_of_steps() -> None:
    whole = with_curves(curves(EARLY, DOWN), target_loss=3.0)
    untimed = whole.model_copy(update={"protocol": whole.protocol.model_copy(update={"blocks": 0})})
    _, rows = found_in(untimed)
    assert rows[FAST].seconds is None
    fast, slow = rows[FAST].ratio, rows[SLOW].ratio
    assert fast is not None
    assert fast.change == pytest.approx(-0.5)
    assert slow is not None
    assert slow.equal
