"""The step of a run's program with random tokens, after the steps that make its optimizer's state.

A trace builds it on fake tensors, and an absent GPU runs it. What one of them changes in the program it passes as a
function. Data are read and optimizations applied with real tensors. The modes of a trace are left for that, and of the
weights only those of a user's own model are made in them.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch.utils._python_dispatch import _disable_current_modes

from assay.config.run import ResolvedRun
from assay.data import open_prepared
from assay.data.random_tokens import write_random
from assay.errors import UsageError
from assay.files import scratch
from assay.model.own_batches import OwnBatches
from assay.model.own_model import batches_of, own_batches
from assay.optimizations import optimizations_of
from assay.step.program import BatchSource, MicroBatch, Program, Share, Step
from assay.training.build import baseline, build
from assay.training.queued_step import take

TOKENS = 2**20
"""Random tokens that stand for the corpus."""
FIRST = 2
"""Steps before the one that counts."""


def after_first_steps(
    run: ResolvedRun, device: torch.device, adapted: Callable[[Program], Program] = lambda program: program
) -> Step:
    """Build the program of a run as `adapted` changes it, and take its first steps.

    Raises `UsageError` if the program cannot be built.
    """
    assert run.model.vocab_size is not None
    with scratch("trace") as folder, ExitStack() as real:
        real.enter_context(_disable_current_modes())
        data = open_prepared(write_random(folder, run.model.vocab_size, TOKENS))
        if run.model.own is not None:  # its weights are made at once, while the GPT's wait on the meta device
            real.close()
        program = baseline(run, data, device)
        if batches_of(program.parts) is not None:  # the user's data must be real, or no function of it is
            with _disable_current_modes():
                program = replace(program, batches=_real_batches(run))
        for one in optimizations_of(run):
            program = one.apply(program, run)
        real.close()
        step = build(adapted(program))
        for index in range(FIRST):
            take(step, index)
        return step


def check_program(run: ResolvedRun, *, with_techniques: bool) -> OwnBatches | None:
    """Describe the program of a user's own model as its run will, on a CPU, and return the user's batches, if any.

    It allocates no weights but the user's. `with_techniques` also applies the techniques, of which some need the run's
    own device or its ranks. Raises `UsageError` if the model cannot be trained, or if a technique refuses it.
    """
    assert run.model.vocab_size is not None
    with scratch("check") as folder:
        data = open_prepared(write_random(folder, run.model.vocab_size, run.model.context_length + 1))
        program = baseline(run, data, torch.device("cpu"))
        _check_values(program, run)
        techniques = optimizations_of(run)
        for one in techniques:
            one.check_program(program, run)
        own = batches_of(program.parts)
        for one in techniques if with_techniques else ():
            program = one.apply(program, run)
        return own


def _check_values(program: Program, run: ResolvedRun) -> None:
    """Raise `UsageError` if a model has no values to begin a training with, or some that are NaN or infinite."""
    named = ((name, one.shape) for part in program.parts for name, one in part.named_parameters())
    first = {name: program.weights.initialize(name, shape) for name, shape in named}
    if bare := [name for name, value in {**first, **program.weights.buffers}.items() if value.is_meta]:
        raise UsageError(
            f"{bare[0].removeprefix('model.')} of {run.model.own} is on the meta device and has no value to start "
            "from; make the model on the CPU to train it (assay estimate --trace predicts it as it is)"
        )
    if unfit := [name for name, value in first.items() if not torch.isfinite(value).all()]:
        raise UsageError(
            f"{unfit[0].removeprefix('model.')} of {run.model.own} is NaN or infinite, so the run would diverge; make "
            "the model with other values"
        )


def _real_batches(run: ResolvedRun) -> BatchSource:
    """Return the rows of a user's own, made from data that have values, also while a step is traced."""
    own = own_batches(run)
    assert own is not None

    def batches(step: int, share: Share) -> list[MicroBatch]:
        with _disable_current_modes():
            return [own.at(step, share)]

    return batches
