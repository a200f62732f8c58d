"""Losses that break a promise make a row `wrong_values`: too far, too equal, and late."""

import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

from assay.analysis.comparison import Comparison, analyse
from assay.analysis.effects import SKEWED, Effect, loss
from assay.analysis.losses import DRIFT_FACTOR, LOSSY, ONSET, ROUNDING, Yardstick, loss_resolution
from assay.analysis.row import Row
from assay.config import load
from assay.optimizations import Numerics
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord, Curve, StudyEnding
from assay.studies.drift import FIRST_STEPS
from support.comparisons import ENVIRONMENT, FACTORS, TREATMENTS, record
from support.factorials import compared

SDPA, BF16, CHECKPOINTING, ACCUMULATION, STACK = TREATMENTS
Loss = float | None


def factor(scale: float, since: int = 0) -> Callable[[int, float], float]:
    """Losses that are `scale` times what they were from a step on."""
    return lambda step, loss: loss * (scale if step >= since else 1.0)


def with_losses(
    made: ComparisonRecord,
    treatment: str,
    change: Callable[[int, float], Loss],
    *,
    seeds: Sequence[int] = (0, 1),
    keep: int | None = None,
    **result: Any,
) -> ComparisonRecord:
    """The record with other losses in the cells of one treatment: the baseline's, changed by step."""

    def changed(one: CellResult) -> CellResult:
        if one.cell.treatment != treatment or one.cell.seed not in seeds:
            return one
        new = with_curve(one, made, change)
        curve = Curve(train_loss=new.curve.train_loss[:keep])
        return one.model_copy(update={"curve": curve, "result": one.result.model_copy(update=result)})

    return made.model_copy(update={"cells": tuple(map(changed, made.cells))})


def with_curve(one: CellResult, made: ComparisonRecord, change: Callable[[int, float], Loss]) -> CellResult:
    """A cell with the losses of its baseline, changed."""
    baseline = next(cell for cell in made.of(BASELINE) if cell.cell.seed == one.cell.seed)
    losses = [loss for loss in baseline.curve.train_loss if loss is not None]
    return one.model_copy(update={"curve": Curve(train_loss=tuple(change(*each) for each in enumerate(losses)))})


def nudged_by(made: ComparisonRecord, change: Callable[[int, float], Loss] | None) -> ComparisonRecord:
    """The record with another drift, or without one."""
    if change is None:
        return made.model_copy(update={"nudged": ()})
    return made.model_copy(update={"nudged": tuple(with_curve(one, made, change) for one in made.nudged)})


def row_of(comparison: Comparison, treatment: str) -> Row:
    return next(row for row in comparison.rows if row.treatment == treatment)


def read(made: ComparisonRecord, treatment: str) -> tuple[Status, str]:
    row = row_of(analyse(made), treatment)
    return row.status, row.reason or ""


def test_a_sound_comparison_keeps_every_promise() -> None:
    comparison = analyse(record())
    assert {row.status for row in (comparison.again, *comparison.rows)} == {Status.DONE}
    assert not comparison.failed


def test_a_reassociated_row_with_twice_the_loss_has_wrong_values_and_keeps_its_figures() -> None:
    comparison = analyse(with_losses(record(), SDPA, factor(9.99 / 4.97)))
    row = row_of(comparison, SDPA)
    assert (row.status, comparison.failed) == (Status.WRONG_VALUES, True)
    assert row.reason is not None
    assert row.reason.startswith("the training loss of step 0 at seed 0 is ")
    assert "they differ by 1e+02 %, and the bound is 0.003 %" in row.reason
    assert row.reason.endswith("(also at seed 1)")
    assert row.effects["step_seconds"].change == pytest.approx(-0.12, abs=0.02)
    assert row.metrics["tensors_peak_bytes"]


def test_a_loss_that_forgets_its_last_piece_has_wrong_values() -> None:
    assert read(with_losses(record(), ACCUMULATION, factor(1 - 0.125)), ACCUMULATION)[0] is Status.WRONG_VALUES


@pytest.mark.parametrize(("scale", "status"), [(0.9, Status.DONE), (1.1, Status.WRONG_VALUES)])
def test_the_first_steps_of_a_reassociated_row_have_a_fixed_bound(scale: float, status: Status) -> None:
    made = with_losses(record(), SDPA, factor(1 + scale * ROUNDING, since=FIRST_STEPS - 1))
    assert read(nudged_by(made, factor(1.0)), SDPA)[0] is status or scale < 1
    short = with_losses(record(), SDPA, factor(1 + scale * ROUNDING), keep=FIRST_STEPS)
    assert read(nudged_by(short, None), SDPA)[0] is status


@pytest.mark.parametrize(("scale", "status"), [(0.9, Status.DONE), (1.1, Status.WRONG_VALUES)])
def test_later_steps_are_held_to_three_times_the_drift(scale: float, status: Status) -> None:
    drift = 0.01
    made = nudged_by(record(), factor(1 + drift, since=30))
    found, reason = read(with_losses(made, SDPA, factor(1 + scale * DRIFT_FACTOR * drift, since=40)), SDPA)
    assert found is status
    assert ("step 40 at seed 0" in reason) is (status is Status.WRONG_VALUES)


def test_a_drift_that_crosses_zero_leaves_its_bound_and_sets_in_some_steps_earlier_or_later() -> None:
    made = nudged_by(record(), lambda step, loss: loss * (1.01 if step == 50 else 1.0))
    for since in (50 - ONSET, 58):
        assert read(with_losses(made, SDPA, factor(1.02, since=since)), SDPA)[0] is Status.DONE
    assert read(with_losses(made, SDPA, factor(1.02, since=50 - ONSET - 1)), SDPA)[0] is Status.WRONG_VALUES


def test_after_more_steps_chaos_may_set_in_earlier_by_more() -> None:
    drift = tuple(0.0 if step < 150 else 0.01 for step in range(200))
    held = Yardstick(baselines={}, repeats=True, drifts={0: drift}, masks=False)
    assert held.bound(Numerics.REASSOCIATED, 0, 100) == pytest.approx(DRIFT_FACTOR * 0.01)
    assert held.bound(Numerics.REASSOCIATED, 0, 99) == ROUNDING
    assert held.bound(Numerics.REASSOCIATED, 0, 199) == pytest.approx(DRIFT_FACTOR * 0.01)


def test_every_seed_has_its_own_drift() -> None:
    made = record()
    calm, wild = nudged_by(made, factor(1.0)).nudged[0], nudged_by(made, factor(1.01)).nudged[1]
    parted = with_losses(made.model_copy(update={"nudged": (calm, wild)}), SDPA, factor(1.02), seeds=[1])
    assert read(parted, SDPA)[0] is Status.DONE
    status, reason = read(with_losses(parted, SDPA, factor(1.02)), SDPA)
    assert status is Status.WRONG_VALUES
    assert "seed 1" not in reason


def test_without_a_drift_the_first_steps_are_held_until_the_baseline_spikes() -> None:
    made = with_losses(nudged_by(record(), None), BASELINE, lambda step, loss: loss * (2.0 if step == 9 else 1.0))
    assert read(with_losses(made, SDPA, factor(1.1, since=9)), SDPA)[0] is Status.DONE
    assert read(with_losses(made, SDPA, factor(1.1, since=8)), SDPA)[0] is Status.WRONG_VALUES


def test_without_a_measured_drift_later_steps_are_not_held_and_a_caveat_says_so() -> None:
    comparison = analyse(with_losses(nudged_by(record(), None), SDPA, factor(2.0, since=FIRST_STEPS)))
    assert row_of(comparison, SDPA).status is Status.DONE
    assert any("in the first 20 steps only" in caveat for caveat in comparison.caveats)
    assert not any("in the first 20 steps only" in caveat for caveat in analyse(record()).caveats)


def test_an_exact_row_that_parts_has_wrong_values_from_its_first_step() -> None:
    _, reason = read(with_losses(record(), CHECKPOINTING, factor(1 + 1e-12, since=7), seeds=[1]), CHECKPOINTING)
    assert reason.startswith("the training loss of step 7 at seed 1 is ")
    assert reason.endswith("they should be equal to the last bit")


def test_an_exact_row_with_another_validation_loss_has_wrong_values() -> None:
    made = record()
    odd = {one.cell.name: Curve(train_loss=one.curve.train_loss, evaluations=((60, 2.5),)) for one in made.cells}
    cells = [
        one.model_copy(update={"curve": odd[one.cell.name]}) if one.cell.treatment == CHECKPOINTING else one
        for one in made.cells
    ]
    status, reason = read(made.model_copy(update={"cells": tuple(cells)}), CHECKPOINTING)
    assert status is Status.WRONG_VALUES
    assert reason.startswith("the validation loss after 60 steps at seed 0 is 2.5,")


def test_where_equal_baselines_part_an_exact_row_is_held_within_rounding() -> None:
    parted = with_losses(record(), AGAIN, factor(1 + 1e-7))
    near = analyse(with_losses(parted, CHECKPOINTING, factor(1 + 1e-6)))
    assert (row_of(near, CHECKPOINTING).status, near.again.status) == (Status.DONE, Status.DONE)
    assert any("Two equal baselines had different losses" in caveat for caveat in near.caveats)
    assert read(with_losses(parted, CHECKPOINTING, factor(1.01)), CHECKPOINTING)[0] is Status.WRONG_VALUES


def test_equal_baselines_that_part_by_more_than_rounding_have_wrong_values() -> None:
    comparison = analyse(with_losses(record(), AGAIN, factor(1.01)))
    assert (comparison.again.status, comparison.failed) == (Status.WRONG_VALUES, True)


@pytest.mark.parametrize(("scale", "status"), [(0.9, Status.DONE), (1.1, Status.WRONG_VALUES)])
def test_a_lossy_row_has_a_bound_in_the_first_steps_only(scale: float, status: Status) -> None:
    assert read(with_losses(record(), BF16, factor(1 + scale * LOSSY)), BF16)[0] is status
    late = with_losses(record(), BF16, lambda step, loss: loss * (1.2 if step >= FIRST_STEPS else 1.001))
    assert read(late, BF16)[0] is Status.DONE


def test_a_lossy_row_is_held_until_its_baseline_spikes() -> None:
    """A rate that is too high takes 16 bits and 32 apart by any amount."""
    calm = with_losses(record(), BF16, factor(1.1, since=10))
    assert read(calm, BF16)[0] is Status.WRONG_VALUES
    spiked = with_losses(calm, BASELINE, lambda step, loss: loss * (2.0 if step == 9 else 1.0))
    spiked = nudged_by(spiked, factor(1.0))
    assert read(with_losses(spiked, BF16, factor(1.1, since=10)), BF16)[0] is Status.DONE
    assert read(with_losses(spiked, BF16, factor(1.1, since=8)), BF16)[0] is Status.WRONG_VALUES


def test_a_mixture_in_another_order_of_sums_is_near_its_baseline() -> None:
    """Rounding may send a token to another expert."""
    base = load("demo")
    made = record(base=base.model_copy(update={"model": base.model.model_copy(update={"n_expert": 4})}))
    for scale, status in ((1.0, Status.DONE), (1 + 0.9 * LOSSY, Status.DONE), (1 + 1.1 * LOSSY, Status.WRONG_VALUES)):
        assert read(with_losses(made, ACCUMULATION, factor(scale)), ACCUMULATION)[0] is status
    assert read(with_losses(made, CHECKPOINTING, factor(1 + 1e-12)), CHECKPOINTING)[0] is Status.WRONG_VALUES


def test_a_lossy_row_in_which_rounding_does_not_show_has_wrong_values() -> None:
    for late in (1.0, 1.001):
        status, reason = read(with_losses(record(), BF16, factor(late, since=FIRST_STEPS)), BF16)
        assert status is Status.WRONG_VALUES
        assert reason == "the losses equal the baseline's to the last bit at seeds 0, 1, but rounding must change them"


def test_a_row_that_trains_differently_has_no_bound() -> None:
    made = record(treatments=("smaller_batch",), factors={**FACTORS, "smaller_batch": FACTORS[BASELINE]})
    assert read(with_losses(made, "smaller_batch", factor(3.0)), "smaller_batch")[0] is Status.DONE


@pytest.mark.parametrize("treatment", [SDPA, CHECKPOINTING])
@pytest.mark.parametrize("in_gradients", [False, True])
def test_a_row_that_diverges_where_its_baseline_does_not_has_wrong_values(treatment: str, in_gradients: bool) -> None:
    """A run that diverges in its gradients ends with a finite loss, and the next step has none."""

    def change(step: int, loss: float) -> Loss:
        return None if step == 10 and not in_gradients else loss

    diverged = {"keep": 11, "status": Status.DIVERGED, "reason": "diverged at step 10"}
    status, reason = read(with_losses(record(), treatment, change, **diverged), treatment)
    assert status is Status.WRONG_VALUES
    assert f"step {10 + in_gradients} at seed 0 is not finite, and the baseline's is " in reason


def test_a_lossy_row_may_diverge() -> None:
    made = with_losses(
        record(),
        BF16,
        lambda step, loss: None if step == 10 else loss * 1.001,
        keep=11,
        status=Status.DIVERGED,
        reason="so",
    )
    assert read(made, BF16) == (Status.DIVERGED, "so")


def test_where_the_baseline_diverges_too_nothing_is_wrong() -> None:
    gone = {"keep": 11, "status": Status.DIVERGED, "reason": "so"}
    made = with_losses(record(), SDPA, lambda step, loss: None if step == 9 else loss, **{**gone, "keep": 10})
    for name in (BASELINE, AGAIN, CHECKPOINTING):
        made = with_losses(made, name, lambda step, loss: None if step == 10 else loss, **gone)
    comparison = analyse(made)
    assert {row_of(comparison, name).status for name in (SDPA, CHECKPOINTING)} == {Status.DIVERGED}


def test_a_row_that_was_stopped_is_held_as_far_as_it_got() -> None:
    stopped = {"keep": 12, "status": Status.INTERRUPTED, "reason": "interrupted"}
    assert read(with_losses(record(), SDPA, factor(1.0), **stopped), SDPA) == (Status.INTERRUPTED, "interrupted")
    assert read(with_losses(record(), SDPA, factor(2.0), **stopped), SDPA)[0] is Status.WRONG_VALUES


def test_a_failure_keeps_its_own_reason() -> None:
    killed = {"keep": 12, "status": Status.KILLED, "reason": "signal 9"}
    row = row_of(analyse(with_losses(record(), SDPA, factor(2.0), **killed)), SDPA)
    assert (row.status, row.reason) == (Status.KILLED, "signal 9")
    assert row.flags[0].startswith("wrong values: the training loss of step 0 at seed 0 is ")


def test_dropout_has_the_bound_of_its_drift_from_the_first_step_on() -> None:
    """Other masks part the losses by percents at once."""
    made = record()
    base = made.base.model_copy(update={"model": made.base.model.model_copy(update={"dropout": 0.1})})
    drawn = nudged_by(made.model_copy(update={"base": base}), factor(0.99))
    assert read(with_losses(drawn, ACCUMULATION, factor(1.02)), ACCUMULATION)[0] is Status.DONE
    assert read(with_losses(drawn, ACCUMULATION, factor(1.04)), ACCUMULATION)[0] is Status.WRONG_VALUES
    assert read(with_losses(nudged_by(drawn, None), ACCUMULATION, factor(1.04)), ACCUMULATION)[0] is Status.DONE


def test_runs_of_another_environment_are_not_held() -> None:
    other = ENVIRONMENT.model_copy(update={"threads": 1})
    made = with_losses(record(), CHECKPOINTING, factor(1 + 1e-7), environment=other)
    assert read(made, CHECKPOINTING)[0] is Status.DONE


def test_a_seed_without_a_baseline_is_named() -> None:
    made = record()
    cells = tuple(one for one in made.cells if (one.cell.treatment, one.cell.seed) != (BASELINE, 1))
    comparison = analyse(made.model_copy(update={"cells": cells, "ending": StudyEnding.INTERRUPTED}))
    assert any(
        "Losses at seed 1 are not compared, because there is no baseline" in caveat for caveat in comparison.caveats
    )


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
