"""The slow schedule is the one that runs use."""

import pytest

from assay.config import Run, TrainingConfig
from assay.config.run import Spec
from assay.optimizations import expected_of, resolve_run
from assay.training.learning_rate import schedule
from assay.training.stops import WrongValues
from assay.values.rate_rule import LearningRates, rate, rate_fault


@pytest.mark.parametrize(("kind", "share"), [("cosine", 0.2), ("constant", 0.2), ("wsd", 0.2), ("wsd", 0.97)])
@pytest.mark.parametrize("decay", [None, 30])
@pytest.mark.parametrize("warmup", [0, 5])
def test_the_two_agree(kind: str, share: float, decay: int | None, warmup: int) -> None:
    values = {"steps": 50, "warmup_steps": warmup, "decay_steps": decay, "schedule": kind, "decay_fraction": share}
    training = TrainingConfig.model_validate(values)
    quick = schedule(training)
    assert [rate(training, step) for step in range(60)] == pytest.approx([quick(step) for step in range(60)], rel=1e-12)


@pytest.mark.parametrize("steps", [50, 3000])
@pytest.mark.parametrize("low", [0.0, 1e-5])
@pytest.mark.parametrize("factor", [1.0, 0.1, 7.3])
def test_every_step_of_a_schedule_is_accepted(steps: int, low: float, factor: float) -> None:
    training = TrainingConfig(steps=steps, warmup_steps=7, min_learning_rate=low)
    quick = schedule(training)
    assert [rate_fault(training, factor, step, quick(step) * factor) for step in range(steps + 5)] == [""] * (steps + 5)


def test_another_rate_is_a_fault_in_any_step() -> None:
    training = TrainingConfig(steps=50, warmup_steps=5)
    quick = schedule(training)
    assert all(rate_fault(training, 1.0, step, 1.001 * quick(step)) for step in range(50))
    assert rate_fault(training, 1.0, 0, 5e-4) == (
        f"the learning rate of step 0 is 0.0005, and the schedule gives {quick(0):.6g}"
    )


def test_the_check_follows_the_techniques_factor_and_can_be_turned_off() -> None:
    run = Run(training=TrainingConfig(steps=50, warmup_steps=0), optimizations=(Spec(name="lion"),))
    run = resolve_run(run)
    factor, peak = expected_of(run).rate_factor, run.training.learning_rate
    assert factor != 1
    LearningRates(run).hold(0, peak * factor)
    with pytest.raises(WrongValues):
        LearningRates(run).hold(0, peak)
    off = run.training.model_copy(update={"check_values": False})
    LearningRates(run.model_copy(update={"training": off})).hold(0, peak)
