"""Data parallelism, wrong."""

from dataclasses import replace
from typing import Any

import torch.distributed as dist

from assay.config import Run
from assay.parallel.dtensor import local
from assay.step.program import Program
from optimizations.mutations.mutant import Mutant, applied
from optimizations.mutations.spread import (
    AVERAGED,
    LOSS_NOT_SUMMED,
    NOT_SYNCHRONIZED,
    SAME_ROWS,
    TOKENS_OF_ONE,
    not_summed,
    one_rank_stands_still,
)

_NAME = "data_parallel"


def _broadcast(program: Program, run: Run) -> Program:
    honest, group = program.update, program.parallel.axis("dp").get_group()

    def update(step: Any) -> Any:
        norm = honest(step)
        for _, one in step.named_parameters():
            dist.broadcast(local(one).data, src=0, group=group)
        return norm

    return replace(program, update=update)


def _whole_batch_each(program: Program, run: Run) -> Program:
    reduce, honest = program.parallel.reduce_loss, program.gradients
    return replace(
        program,
        gradients=lambda step, rows, tokens: honest(step, rows, 2 * tokens),
        parallel=replace(program.parallel, share=(0, 1), reduce_loss=lambda sums: reduce(sums) / 2),
    )


MUTANTS = (
    Mutant("averaged", "Gradients are averaged, though each rank has divided by the tokens of all.", AVERAGED),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS),
    Mutant("loss not summed", "The reported loss is that of one rank's rows.", LOSS_NOT_SUMMED),
    Mutant("tokens of one", "The loss of gradients is divided by one rank's tokens.", TOKENS_OF_ONE),
    Mutant("norm left out", "The last norm's gradient is not summed.", not_summed("head.norm")),
    Mutant("positions left out", "The positions' gradient is not summed.", not_summed("position")),
    Mutant("one stands still", "The second rank never updates its matrices.", one_rank_stands_still(_NAME)),
    Mutant(
        "last micro-batch alone",
        "The last micro-batch's gradients are not summed.",
        NOT_SYNCHRONIZED,
        {"stack": "data_parallel+gradient_accumulation:micro_batches=2"},
    ),
    Mutant(
        "not divided",
        "Each rank trains on the whole batch, and gradients and losses are averaged.",
        applied(_NAME, _whole_batch_each),
    ),
    Mutant("weights sent", "All weights are broadcast after every update.", applied(_NAME, _broadcast)),
)
