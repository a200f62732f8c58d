"""Bugs of ranks that share a batch: rows, sums and copies of one model that are no longer alike."""

from dataclasses import replace
from typing import Any

import torch

from assay.config import Run
from assay.parallel.dtensor import local
from assay.step.program import Program
from optimizations.mutations.mutant import Break, applied, replaced, rewritten

CLIPPED = {"training": {"gradient_clip": 0.1}}

AVERAGED = rewritten(
    "assay.parallel.fsdp:replicas", ("set_gradient_divide_factor(1.0)", "set_gradient_divide_factor(2.0)")
)
"""Gradients are averaged over ranks, though each rank has divided by the tokens of all."""
SAME_ROWS = rewritten(
    "assay.parallel.fsdp:share_batch", ("(index * count + place, before * count)", "(index * count, before * count)")
)
"""All ranks train on the rows of the first."""
LOSS_NOT_SUMMED = rewritten(
    "assay.parallel.fsdp:sum_losses",
    (
        "    total = reduce_here(sums).clone()\n        dist.all_reduce(total, group=group)",
        "    total = reduce_here(sums).clone()",
    ),
)
"""A rank reports the loss of its own rows."""
TOKENS_OF_ONE = rewritten(
    "assay.training.loop:take",
    ("(step, micro_batches, targets)", "(step, micro_batches, targets // program.parallel.share[1])"),
)
"""Gradients are of a loss that is divided by the tokens of one rank."""
NORM_OF_PIECES = replaced("assay.parallel.rank_sums:_split_over", lambda gradient: ())
"""Each rank clips by the norm of its own pieces."""
NOT_SYNCHRONIZED = rewritten(
    "assay.parallel.fsdp:_synchronize", ("set_requires_gradient_sync(last,", "set_requires_gradient_sync(not last,")
)
"""Gradients travel in all micro-batches but the last."""

SYNCHRONIZED_ALWAYS = rewritten(
    "assay.parallel.fsdp:_synchronize", ("set_requires_gradient_sync(last,", "set_requires_gradient_sync(True,")
)
"""Gradients are summed in every micro-batch."""


def one_rank_stands_still(technique: str) -> Break:
    """Leave the matrices of rank 1 as they are."""

    def change(program: Program, run: Run) -> Program:
        honest, rank = program.update, torch.distributed.get_rank()

        def update(step: Any) -> Any:
            before = [local(one).detach().clone() for _, one in step.named_parameters()]
            norm = honest(step)
            for (_, one), was in zip(step.named_parameters(), before, strict=True):
                if rank == 1 and one.ndim > 1:
                    local(one).data.copy_(was)
            return norm

        return replace(program, update=update)

    return applied(technique, change)


def not_summed(fragment: str) -> Break:
    """Leave weights whose name has a fragment out of the sums over ranks."""
    left_out = f"owned | {{one for name, one in part.named_parameters() if {fragment!r} in name}}"
    return rewritten("assay.parallel.fsdp:replicas", ("    wrap(part, owned)", f"    wrap(part, {left_out})"))
