"""A tiny run to which any optimization can be applied, trained for a few steps and traced."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.measure.trace import StepTracer
from assay.optimizations import Stage, Unpredicted, catalogue, resolve, resolved
from assay.records.trace import Trace
from assay.training.loop import read, take_step, train_step
from estimator.built import build_step

SHAPE = ModelConfig(n_layer=4, n_head=2, n_embd=32, context_length=16, vocab_size=61)


ON_ONE_DEVICE = [name for name in catalogue() if not resolve(Spec(name=name)).axes()]
"""The others divide a step over ranks, and are tested there (`tests/parallel`)."""


def marked(*names: str) -> list[pytest.MarkDecorator]:
    """The marks of a test of these optimizations: what compiles takes half a minute to begin."""
    return [pytest.mark.slow] if any(catalogue()[name].stage is Stage.COMPILE for name in names) else []


ONE_BY_ONE = [pytest.param(name, marks=marked(name)) for name in ON_ONE_DEVICE]


def specs_of(names: Sequence[str]) -> tuple[Spec, ...]:
    """Optimizations at their defaults, by name."""
    return tuple(resolve(Spec(name=name)).spec() for name in names)


def run_with(*specs: Spec, model: ModelConfig = SHAPE, ranks: int = 1) -> Run:
    """A run of four sequences a step, not clipped: some techniques cannot."""
    training = TrainingConfig(batch_size=4, steps=5, warmup_steps=1, gradient_clip=0.0)
    return resolved(Run(model=model, training=training, device="cpu", ranks=ranks, optimizations=specs))


def predicted(run: Run, machine: Machine) -> dict[str, Any] | None:
    """The estimate of a run; None where one of its techniques has no arithmetic."""
    try:
        return estimate(run, machine).to_dict()
    except Unpredicted:
        return None


def losses(run: Run, steps: int = 3) -> list[float]:
    """The first losses of a run."""
    torch.manual_seed(run.seed)  # dropout's noise
    step = build_step(run)
    return [train_step(step, index).loss for index in range(steps)]


def traced(run: Run) -> Trace:
    """The second step of a run, traced."""
    step = build_step(run)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        taken = take_step(tracer.watch(), 1)
    (record,) = read(step, [taken])
    return tracer.trace(record.loss, record.tokens)


def without(run: Run, names: Sequence[str] = ()) -> Run:
    """The same run with only the optimizations in `names`."""
    return run.model_copy(update={"optimizations": tuple(spec for spec in run.optimizations if spec.name in names)})
