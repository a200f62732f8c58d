"""The watch of updates: an honest run passes step by step, and a fault is seen in the step in which it happens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config import ModelConfig, Run
from assay.config.run import Spec
from assay.optimizations import resolve_run
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.training.stops import WrongValues
from assay.values.watch import UpdateWatch
from support.runs import SHAPE, run_with
from support.steps import build_step

STEPS, FAULTY = 10, 6
Change = Callable[[Step], None]

BY_ELEMENT = ("fused_adamw", "foreach_adamw", "adam", "sgd", "sgd:nesterov=true", "lion", "bf16_full", "fp16_full")
OTHERS = ("muon", "adafactor", "adamw_bf16_state", "optimizer_in_backward", "bf16_mixed", "fp16_mixed")


def watched(
    name: str, change: Change | None = None, model: ModelConfig = SHAPE, ranks: Ranks = ALONE, **training: Any
) -> UpdateWatch:
    """Watch a run's steps; before the faulty one, `change` spoils it."""
    run = run_with(Spec.parse(name), model=model)
    training = {"steps": STEPS, "warmup_steps": 2, "learning_rate": 1e-2, **training}
    run = resolve_run(run.model_copy(update={"training": run.training.model_copy(update=training)}))
    torch.manual_seed(run.seed)
    step = build_step(run)
    watch = UpdateWatch(run, step, ranks=ranks)
    take = watch.taking(take_step)
    for index in range(STEPS):
        if index == FAULTY and change is not None:
            change(step)
        (record,) = read(step, [take(step, index, None)])
        watch.stepped(record)
    return watch


@pytest.mark.parametrize("name", [*BY_ELEMENT, *OTHERS])
@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_an_honest_run_passes(name: str, rate: float) -> None:
    seen = watched(name, model=SHAPE.model_copy(update={"dropout": 0.1}), learning_rate=rate)
    assert seen.updates >= STEPS - 2  # float16 may skip its first ones


def _update(step: Step, around: Callable[[Step, Callable[[], Tensor]], Tensor]) -> None:
    """Replace the program's update by `around`, which gets the real one."""
    update = step.program.update
    object.__setattr__(step, "program", replace(step.program, update=lambda one: around(one, lambda: update(one))))


def _left_out(step: Step) -> None:
    def none(one: Step, update: Callable[[], Tensor]) -> Tensor:
        norm = one.program.gradient_norm(one)
        for _, parameter in one.named_parameters():
            parameter.grad = None
        return norm

    _update(step, none)


def _rounded(step: Step) -> None:
    def round_after(one: Step, update: Callable[[], Tensor]) -> Tensor:
        norm = update()
        with torch.no_grad():
            for _, parameter in one.named_parameters():
                parameter.copy_(parameter.bfloat16())
        return norm

    _update(step, round_after)


def _twice(step: Step) -> None:
    real = step.optimizer.step
    step.optimizer.step = lambda *given: (real(), real())[1]  # type: ignore[method-assign]


def _faster(step: Step) -> None:
    def doubled(one: Step, update: Callable[[], Tensor]) -> Tensor:
        for group in one.optimizer.param_groups:
            group["lr"] *= 2
        return update()

    _update(step, doubled)


def _forgotten(step: Step) -> None:
    with torch.no_grad():
        for entries in step.optimizer.state.values():
            for value in entries.values():
                if isinstance(value, Tensor) and value.ndim:
                    value.zero_()


def _moved_between(step: Step) -> None:
    with torch.no_grad():
        for _, parameter in step.named_parameters():
            parameter.mul_(0.999)


@pytest.mark.parametrize("change", [_left_out, _rounded, _twice, _faster, _forgotten, _moved_between])
@pytest.mark.parametrize("name", ["fused_adamw", "sgd", "lion", "bf16_mixed"])
def test_a_fault_is_seen_in_its_step(name: str, change: Change) -> None:
    with pytest.raises(WrongValues, match=f"step {FAULTY}"):
        watched(name, change)


@pytest.mark.parametrize("change", [_left_out, _moved_between])
def test_a_rule_that_is_not_by_element_must_move_its_weights_and_nobody_else_may(change: Change) -> None:
    with pytest.raises(WrongValues, match=f"step {FAULTY}"):
        watched("adafactor", change)


def test_steps_that_begin_with_one_random_state_are_a_fault() -> None:
    noisy = SHAPE.model_copy(update={"dropout": 0.1})
    fault = f"steps {FAULTY} and {FAULTY + 1} begin with one random state, so their dropout masks are equal"

    def frozen(step: Step) -> None:
        """Let the generator stand still: what a step draws it draws from a copy."""
        gradients = step.program.gradients

        def apart(*given: Any) -> Tensor:
            with torch.random.fork_rng(devices=[]):
                return gradients(*given)

        object.__setattr__(step, "program", replace(step.program, gradients=apart))

    with pytest.raises(WrongValues, match=fault):
        watched("fused_adamw", frozen, model=noisy)


def test_a_run_whose_values_are_not_checked_is_not_watched() -> None:
    assert watched("sgd", _left_out, check_values=False).updates == 0
    run = resolve_run(Run(model=SHAPE))
    assert UpdateWatch(run, build_step(run)).taking(take_step) is take_step


class SecondOfTwo(Ranks):
    """A rank that never waits, as the other one says nothing."""

    world = 2  # type: ignore[assignment]

    def gather(self, text: str) -> list[str]:
        return ["", text]


def test_one_of_several_ranks_keeps_its_first_fault_until_all_ask_for_it() -> None:
    watched("sgd", ranks=SecondOfTwo()).conclude()
    watch = watched("sgd", _moved_between, ranks=SecondOfTwo())
    with pytest.raises(WrongValues, match=f"changed before its update in step {FAULTY} on rank 1"):
        watch.conclude()
