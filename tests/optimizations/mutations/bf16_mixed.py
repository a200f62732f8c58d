"""Mixed precision in bfloat16, wrong."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch

from assay.config import Run
from assay.step.program import Precision, Program
from optimizations.mutations.mutant import Clock, Mutant, applied, rewritten
from optimizations.mutations.precision import (
    NORM_IN_16_BITS,
    loss_in_16_bits,
    noisy,
    rounded,
    scaled,
    stale_weights,
    wide_block,
    wide_head,
    with_gradients,
    without_smallest,
)
from optimizations.mutations.rules import around

_NAME = "bf16_mixed"


def _until_late(program: Program, run: Run, clock: Clock) -> Program:
    honest = partial(torch.autocast, program.device.type, dtype=torch.bfloat16)
    return replace(program, precision=Precision((lambda: nullcontext() if clock.late else honest(),)))


MUTANTS = (
    Mutant("head in float32", "The head is left out of autocast.", wide_head(_NAME)),
    Mutant("first block in float32", "The first block is left out of autocast.", wide_block(_NAME)),
    Mutant(
        "float16",
        "Products run in float16, without a loss scale.",
        rewritten("assay.optimizations.bf16_mixed:Bf16Mixed.apply", ("torch.bfloat16", "torch.float16")),
    ),
    Mutant("weights rounded", "Weights are rounded to bfloat16 after every update.", around(_NAME, after=rounded)),
    Mutant("stale weights", "The narrow copies of weights are those of the first step.", stale_weights(_NAME)),
    Mutant("loss in 16 bits", "The loss is computed in bfloat16.", loss_in_16_bits(_NAME)),
    Mutant(
        "norm in 16 bits",
        "The norm that gradients are clipped by is computed in bfloat16.",
        NORM_IN_16_BITS,
        {"training": {"gradient_clip": 0.1}},
    ),
    # Sizes that are seen here and in half of random runs (docs/measured/values.md).
    Mutant("MLPs scaled", "The gradients of MLPs are 1 % larger.", with_gradients(_NAME, scaled(".mlp.", 1.01))),
    Mutant(
        "smallest lost",
        "The smallest tenth of the elements of every gradient are zero.",
        with_gradients(_NAME, without_smallest(0.1)),
    ),
    Mutant("norms noisy", "The gradients of norms have noise of 3 %.", with_gradients(_NAME, noisy("norm", 0.03))),
    Mutant("until late", "Late in the run products are in float32.", applied(_NAME, _until_late, late=True), late=True),
)
