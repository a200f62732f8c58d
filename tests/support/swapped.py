"""A run's step with another optimizer in it, or with a part of it undone: what a proof must not let pass."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from assay.config import Run
from assay.instruments.step_trace import StepTracer
from assay.optimizations import optimizations_of
from assay.optimizers.recipes import OptimizerRecipe
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.step.program import Program
from assay.training.build import baseline, build
from assay.training.loop import train_step
from support.random_data import RandomData


def traced_with(recipe: OptimizerRecipe, run: Run) -> Trace:
    """The second step of the plain run with that optimizer, traced."""
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    return _traced(replace(program, optimizer=recipe))


def traced_after(undo: Callable[[nn.Module], None], run: Run) -> Trace:
    """The second step of the run, traced; `undo` has changed each part after all optimizations did."""
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    for part in program.parts:
        undo(part)
    return _traced(program)


def _traced(program: Program) -> Trace:
    step = build(program)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return tracer.trace(record.loss, record.tokens)


def proof_of(run: Run, trace: Trace) -> Evidence:
    """What the run's only optimization makes of a trace."""
    (one,) = optimizations_of(run)
    return one.verify(trace, run)
