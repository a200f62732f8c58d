"""Bugs that any optimizer can have: options, groups and state that are not what the run asks for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assay.config import Run
from assay.step.program import NamedParameters, OptimizerLike, Program
from optimizations.mutations.mutant import Break, Clock, applied

_LONG_AGO = 100_000.0
"""A number of updates after which a bias correction is 1."""


def made(technique: str, change: Callable[[OptimizerLike, Run], Any]) -> Break:
    """Have `change` alter the technique's optimizer when it is made."""

    def altered(program: Program, run: Run) -> Program:
        recipe = program.optimizer

        def optimizer(parameters: NamedParameters) -> OptimizerLike:
            one = recipe(parameters)
            change(one, run)
            return one

        return replace(program, optimizer=optimizer)

    return applied(technique, altered)


def tuned(technique: str, **options: Any) -> Break:
    """Give every group of the optimizer other options."""
    return made(technique, lambda optimizer, run: [group.update(options) for group in optimizer.param_groups])


def scaled(technique: str, option: str, factor: float) -> Break:
    """Multiply one option of every group."""

    def change(optimizer: OptimizerLike, run: Run) -> None:
        for group in optimizer.param_groups:
            group[option] *= factor

    return made(technique, change)


def decays_vectors(technique: str) -> Break:
    """Let biases and gains decay as matrices do."""

    def change(optimizer: OptimizerLike, run: Run) -> None:
        decay = max(group["weight_decay"] for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            group["weight_decay"] = decay

    return made(technique, change)


def around(
    technique: str,
    before: Callable[[OptimizerLike, Run], Any] = lambda optimizer, run: None,
    after: Callable[[OptimizerLike, Run], Any] = lambda optimizer, run: None,
) -> Break:
    """Do something before and after each update."""

    def change(optimizer: Any, run: Run) -> None:
        honest = optimizer.step

        def step() -> None:
            before(optimizer, run)
            honest()
            after(optimizer, run)

        optimizer.step = step

    return made(technique, change)


def only(technique: str, kept: Callable[[int, str], bool]) -> Break:
    """Let the optimizer know some of its parameters only; `kept` takes the number and the name of each."""

    def altered(program: Program, run: Run) -> Program:
        recipe = program.optimizer
        return replace(
            program,
            optimizer=lambda parameters: recipe([one for n, one in enumerate(parameters) if kept(n, one[0])]),
        )

    return applied(technique, altered)


def at_peak(technique: str, peak: Callable[[Run], float] = lambda run: run.training.learning_rate) -> Break:
    """Update at the largest learning rate, whatever the schedule says."""

    def before(optimizer: OptimizerLike, run: Run) -> None:
        for group in optimizer.param_groups:
            group["lr"] = peak(run)

    return around(technique, before)


def one_step_late(technique: str) -> Break:
    """Update at the learning rate of the step before."""

    def before(optimizer: OptimizerLike, run: Run) -> None:
        for group in optimizer.param_groups:
            group["lr"], group["following"] = group.get("following", group["lr"]), group["lr"]

    return around(technique, before)


def uncorrected(technique: str) -> Break:
    """Leave the bias correction out, as if there had been many updates before."""

    def before(optimizer: OptimizerLike, run: Run) -> None:
        for state in optimizer.state.values():
            state["step"] += _LONG_AGO - state["step"]

    return around(technique, before)


def forgets(technique: str, *moments: str) -> Break:
    """Begin every update with moments of zero."""

    def before(optimizer: OptimizerLike, run: Run) -> None:
        for state in optimizer.state.values():
            for name in state.keys() & set(moments):
                state[name].zero_()

    return around(technique, before)


def forgets_when_saved(technique: str) -> Break:
    """Lose all state when a checkpoint is written."""

    def change(optimizer: Any, run: Run) -> None:
        honest = optimizer.state_dict

        def state_dict() -> dict[str, Any]:
            saved: dict[str, Any] = honest()
            saved = {**saved, "state": {key: dict(one) for key, one in saved["state"].items()}}
            for state in optimizer.state.values():
                state.clear()
            return saved

        optimizer.state_dict = state_dict

    return made(technique, change)


def stops_late(technique: str, kept: Callable[[int], bool]) -> Break:
    """From a later step on, leave some weights as they are; `kept` takes the number of each."""

    def altered(program: Program, run: Run, clock: Clock) -> Program:
        honest = program.update

        def update(step: Any) -> Any:
            resting = [one for n, (_, one) in enumerate(step.named_parameters()) if clock.late and not kept(n)]
            before = [one.detach().clone() for one in resting]
            norm = honest(step)
            for one, was in zip(resting, before, strict=True):
                one.data.copy_(was)
            return norm

        return replace(program, update=update)

    return applied(technique, altered, late=True)
