"""Optimizers that leave a part of their work undone: every second weight, other decay or settings, a reset count."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.config import Spec
from assay.optimizations import optimizations_of
from assay.optimizers.recipes import OptimizerRecipe, decay_groups
from assay.records.evidence import Evidence
from assay.step.program import NamedParameters, OptimizerLike
from assay.training.build import baseline
from support.random_data import RandomData
from support.runs import run_with
from support.swapped import proof_of, traced_with

NAMES = ("adafactor", "adam", "adamw_bf16_state", "foreach_adamw", "fused_adamw", "lion", "muon", "normuon", "sgd")
Spoil = Callable[[OptimizerLike], None]


def spoiled(name: str, spoil: Spoil) -> Evidence:
    """The proof of an optimizer that was spoiled after it was made."""
    run = run_with(Spec(name=name))
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    (one,) = optimizations_of(run)
    inner: OptimizerRecipe = one.apply(program, run).optimizer

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        made = inner(parameters)
        spoil(made)
        return made

    return proof_of(run, traced_with(recipe, run))


def leave_out_every_second(made: OptimizerLike) -> None:
    """Take the gradients of every second parameter away before each update."""
    update = made.step

    def step() -> Any:
        every = [one for group in made.param_groups for one in group["params"]]
        for one in every[::2]:
            one.grad = None
        return update()

    made.step = step  # type: ignore[method-assign]


def decay_vectors(made: OptimizerLike) -> None:
    for group in made.param_groups:
        group["weight_decay"] = max(group["weight_decay"], 0.1)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_every_second_parameter_is_no_proof(name: str) -> None:
    assert not spoiled(name, leave_out_every_second).verdict


@pytest.mark.parametrize("name", NAMES)
def test_vectors_that_decay_are_no_proof(name: str) -> None:
    evidence = spoiled(name, decay_vectors)
    assert not evidence.verdict
    assert "but the weight decay of " in evidence.observed


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [("fused_adamw", "betas", (0.9, 0.999)), ("lion", "betas", (0.5, 0.5)), ("sgd", "momentum", 0.5)],
)
def test_other_settings_are_no_proof(name: str, setting: str, value: Any) -> None:
    def change(made: OptimizerLike) -> None:
        for group in made.param_groups:
            group[setting] = value

    evidence = spoiled(name, change)
    assert not evidence.verdict
    assert f"{setting} is {value} instead of" in evidence.observed


def test_a_parameter_in_no_group_is_no_proof() -> None:
    def recipe(parameters: NamedParameters) -> OptimizerLike:
        betas = (run.training.beta1, run.training.beta2)
        return torch.optim.AdamW(decay_groups(parameters[1:], 0.1), lr=1e-3, betas=betas, fused=True, foreach=False)

    run = run_with(Spec(name="fused_adamw"))
    evidence = proof_of(run, traced_with(recipe, run))
    assert not evidence.verdict
    assert evidence.observed.endswith("but 1 of 52 parameters are in no parameter group")


def test_counts_of_updates_that_differ_are_no_proof() -> None:
    def count_wrongly(made: OptimizerLike) -> None:
        update = made.step

        def step() -> Any:
            if made.state:
                next(iter(made.state.values()))["step"].zero_()
            return update()

        made.step = step  # type: ignore[method-assign]

    evidence = spoiled("fused_adamw", count_wrongly)
    assert not evidence.verdict
    assert evidence.observed.endswith("but the update counts of parameters differ: 1 to 2")
