"""Mutants and their small runs by name, so that a rank or a table can ask for them."""

from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.optimizations import resolve, resolve_run
from optimizations.mutations.mutant import Mutant
from support.runs import SHAPE

TRAINING = TrainingConfig(batch_size=8, steps=20, warmup_steps=2, gradient_clip=0.0)


HONEST = Mutant(
    "honest",
    "Nothing is wrong.",
    lambda patch: None,
    {"model": {"dropout": 0.1, "activation": "gelu_tanh"}},
    late=True,
)
"""A control with the dropout of the preset wikitext-2."""


@cache
def mutants_of(technique: str) -> dict[str, Mutant]:
    """By name; none where nobody wrote any."""
    if not (Path(__file__).parent / f"{technique}.py").exists():
        return {}
    found = import_module(f"optimizations.mutations.{technique}").MUTANTS
    assert len({one.name for one in found}) == len(found), f"two mutants of {technique} have one name"
    return {one.name: one for one in found}


def run_of(technique: str, mutant: Mutant | None = None) -> Run:
    """The small run of a technique, or of one of its mutants."""
    if not (Path(__file__).parent / f"{technique}.py").exists():
        pytest.fail(f"{technique} has no wrong variants; write tests/optimizations/mutations/{technique}.py")
    home = import_module(f"optimizations.mutations.{technique}")
    changes = [getattr(home, "RUN", {}), mutant.run if mutant else {}]
    model, training = (
        {**base.model_dump(), **{key: value for one in changes for key, value in one.get(part, {}).items()}}
        for part, base in (("model", SHAPE), ("training", TRAINING))
    )
    stack = {"stack": technique, **changes[0], **changes[1]}["stack"]
    specs = tuple(resolve(one).spec() for one in Spec.parse_stack(stack))
    divided = any(resolve(one).axes() for one in specs)
    on_gpu = mutant is not None and mutant.gpu
    return resolve_run(
        Run(
            model=ModelConfig(**model),
            training=TrainingConfig(**training),
            device="cuda" if on_gpu else "cpu",
            ranks=2 if divided else 1,
            optimizations=specs,
        )
    )
