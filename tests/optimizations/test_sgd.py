"""SGD: one moment or none, a loss that cannot be AdamW's, and a proof that AdamW does not pass."""

import pytest

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
from assay.optimizers.recipes import lion, sgd
from support.runs import run_with
from support.steps import losses, traced
from support.swapped import proof_of, traced_with

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
RUN = run_with(Spec(name="sgd"))
BARE = run_with(Spec(name="sgd", fields={"momentum": 0.0}))


def test_its_loss_is_not_adamws_to_four_digits() -> None:
    plain, changed = losses(run_with(), 5), losses(RUN, 5)
    assert plain[0] == changed[0]
    assert all(abs(one - other) > 1e-4 for one, other in zip(plain[2:], changed[2:], strict=True))


def test_without_momentum_there_is_no_state() -> None:
    trace = traced(BARE)
    assert trace.memory.optimizer_state_bytes == estimate(BARE, CPU).cost.optimizer_state_bytes == 0
    assert proof_of(BARE, trace).verdict


def test_momentum_that_is_missing_or_too_much_is_caught() -> None:
    assert not proof_of(RUN, traced_with(sgd(RUN.training, 0.0, nesterov=False), RUN)).verdict
    assert not proof_of(BARE, traced_with(sgd(RUN.training, 0.9, nesterov=False), RUN)).verdict


def test_another_optimizer_of_one_moment_is_caught() -> None:
    assert not proof_of(RUN, traced_with(lion(RUN.training, (0.9, 0.99)), RUN)).verdict


@pytest.mark.parametrize("decay", [0.0, 1e-4])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_momentum_that_should_look_ahead_and_does_not_is_caught_and_the_reverse(decay: float, clip: float) -> None:
    stacks = [Spec(name="sgd", fields={"nesterov": ahead, "weight_decay": decay}) for ahead in (False, True)]
    runs = [run_with(one) for one in stacks]
    runs = [
        run.model_copy(update={"training": run.training.model_copy(update={"gradient_clip": clip})}) for run in runs
    ]
    for run, other in (runs, runs[::-1]):
        trace = traced(run)
        assert proof_of(run, trace).verdict, proof_of(run, trace).observed
        assert not proof_of(other, trace).verdict


def test_nesterov_wants_momentum() -> None:
    bad = resolve(Spec(name="sgd", fields={"momentum": 0.0, "nesterov": True}))
    with pytest.raises(Conflict, match="set sgd:momentum above 0"):
        bad.check(RUN, CPU)
