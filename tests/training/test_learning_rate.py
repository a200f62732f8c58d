"""Schedules by their definitions, and which changes of a run bend them."""

import math

import pytest

from assay.config import TrainingConfig
from assay.training.learning_rate import decay_start, describe_bend, schedule


def nanogpt(it: int, learning_rate: float, min_lr: float, warmup_iters: int, lr_decay_iters: int) -> float:
    """karpathy/nanoGPT, train.py, get_lr."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


@pytest.mark.parametrize(("warmup", "decay"), [(0, 40), (7, 40), (10, 30)])
def test_cosine_is_nanogpts(warmup: int, decay: int) -> None:
    training = TrainingConfig(
        learning_rate=1e-3, min_learning_rate=1e-4, warmup_steps=warmup, decay_steps=decay, steps=50
    )
    rate = schedule(training)
    assert [rate(i) for i in range(50)] == [nanogpt(i, 1e-3, 1e-4, warmup, decay) for i in range(50)]


def test_cosine_ends_with_the_run_unless_told_otherwise() -> None:
    rate = schedule(TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-4, warmup_steps=0, steps=10))
    assert rate(10) == 1e-4
    assert rate(9) > 1e-4


def test_constant_warms_up_and_stays() -> None:
    rate = schedule(TrainingConfig(learning_rate=1e-3, schedule="constant", warmup_steps=3, steps=10))
    assert [rate(i) for i in range(5)] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert rate(1000) == 1e-3


def test_a_run_shorter_than_its_warm_up_only_warms_up() -> None:
    rate = schedule(TrainingConfig(learning_rate=1e-3, warmup_steps=100, steps=3))
    assert [rate(i) for i in range(3)] == pytest.approx([1e-3 * (i + 1) / 101 for i in range(3)])


def test_a_change_that_bends_the_schedule_is_a_sentence_with_both_rates() -> None:
    short = TrainingConfig(steps=20, warmup_steps=2, learning_rate=1e-3, min_learning_rate=1e-4)
    long = short.model_copy(update={"steps": 30})
    said = describe_bend(short, long, 20)
    before, now, then = schedule(short)(19), schedule(long)(20), schedule(short)(20)
    assert f"goes from {before:.3g} to {now:.3g}, and would have been {then:.3g}" in (said or "")
    assert "training.steps=30 in place of 20" in (said or "")


@pytest.mark.parametrize("fixed", [{"decay_steps": 20}, {"schedule": "constant"}])
def test_more_steps_alone_bend_no_schedule_that_does_not_end_with_them(fixed: dict[str, object]) -> None:
    short = TrainingConfig.model_validate({"steps": 20, "warmup_steps": 2, **fixed})
    assert describe_bend(short, short.model_copy(update={"steps": 30}), 20) is None
    assert describe_bend(short, short.model_copy(update={"tokens": 10**6}), 20) is None


def test_the_step_after_the_last_has_the_lowest_rate() -> None:
    training = TrainingConfig(steps=20, warmup_steps=2, learning_rate=1e-3, min_learning_rate=1e-4)
    assert schedule(training)(20) == 1e-4 < schedule(training)(19)


WSD = TrainingConfig(
    steps=20, warmup_steps=2, learning_rate=1e-3, min_learning_rate=1e-4, schedule="wsd", decay_fraction=0.25
)


def test_wsd_warms_up_stays_and_falls_in_a_line() -> None:
    found = [1e4 * schedule(WSD)(step) for step in range(22)]
    rising, stable, falling = [10 / 3, 20 / 3], [10.0] * 14, [10.0 - 9 * part / 5 for part in range(1, 5)]
    assert found == pytest.approx([*rising, *stable, *falling, 1.0, 1.0])
    assert decay_start(WSD) == 15


@pytest.mark.parametrize(("steps", "share", "start"), [(20, 0.001, 19), (20, 1.0, 2), (20, 0.5, 10), (1000, 0.2, 800)])
def test_a_decay_is_at_least_a_step_and_never_in_the_warm_up(steps: int, share: float, start: int) -> None:
    training = WSD.model_copy(update={"steps": steps, "decay_fraction": share})
    assert decay_start(training) == start
    assert schedule(training)(start) == 1e-3 > schedule(training)(start + 1)


def test_wsd_that_ends_in_its_warm_up_only_warms_up() -> None:
    short = WSD.model_copy(update={"warmup_steps": 30})
    assert [schedule(short)(step) for step in range(20)] == pytest.approx([1e-3 * (i + 1) / 31 for i in range(20)])
    assert schedule(short)(30) == 1e-4


def test_more_steps_bend_wsd_only_after_its_decay_began() -> None:
    longer = WSD.model_copy(update={"steps": 40})
    assert [describe_bend(WSD, longer, done) for done in (5, 15, 16)] == [None, None, None]
    for done in (17, 20):
        said = describe_bend(WSD, longer, done) or ""
        assert "which bends the schedule" in said
        assert said.endswith("a branch from a step up to 15 keeps it (assay train --branch RUN@STEP)")
    constant = WSD.model_copy(update={"schedule": "constant"})
    assert describe_bend(constant, WSD, 16) is None
    assert describe_bend(constant, WSD, 17) is not None
