"""Experts divided over ranks, wrong."""

from dataclasses import replace
from typing import Any

from assay.config import Run
from assay.parallel.dtensor import local
from assay.step.program import Program
from optimizations.mutations.mutant import Mutant, applied, replaced, rewritten
from optimizations.mutations.spread import AVERAGED, CLIPPED, NORM_OF_PIECES, SAME_ROWS

RUN = {
    "stack": "expert_parallel+data_parallel",
    "model": {"n_expert": 4, "n_expert_active": 2, "router_loss": 0.1},
}

_NAME, _DIVIDE = "expert_parallel", "assay.optimizations.expert_parallel.step:divide_experts"
_BACK, _PLAN = (
    "assay.optimizations.expert_parallel.step:_Journey.back",
    "assay.optimizations.expert_parallel.step:_Journey.plan",
)


def _halved(program: Program, run: Run) -> Program:
    """What averages over ranks everywhere else would halve here."""

    def finish(step: Any) -> None:
        for name, one in step.named_parameters():
            if "experts" in name and one.grad is not None:
                local(one.grad).div_(2)

    return replace(program, finish_gradients=(*program.finish_gradients, finish))


MUTANTS = (
    Mutant(
        "order lost",
        "Results are sent back in the order in which rows came, and not in that of their experts.",
        rewritten(_BACK, ("results.index_select(0, self.order.argsort())", "results")),
    ),
    Mutant(
        "wrong way back",
        "Results are put back by the permutation that sorted them.",
        rewritten(_BACK, ("self.order.argsort()", "self.order")),
    ),
    Mutant(
        "balance of one rank",
        "Each rank balances its own tokens.",
        replaced("assay.parallel.fsdp:_pool", lambda module, mesh: None),
    ),
    Mutant("experts halved", "Experts' gradients are divided by the ranks.", applied(_NAME, _halved)),
    Mutant(
        "first layer only",
        "Only the first layer's experts are divided.",
        rewritten(
            _DIVIDE,
            (
                "for module in part.modules():",
                "for module in [m for m in part.modules() if isinstance(m, Experts)][:1]:",
            ),
        ),
    ),
    Mutant(
        "last layer forgotten",
        "The last layer's experts are on every rank.",
        rewritten(
            _DIVIDE,
            (
                "for module in part.modules():",
                "for module in [m for m in part.modules() if isinstance(m, Experts)][:-1]:",
            ),
        ),
    ),
    Mutant("norm of pieces", "Each rank clips by the norm of its own experts.", NORM_OF_PIECES, CLIPPED),
    Mutant(
        "unsorted",
        "Rows that arrive are not sorted by their expert.",
        rewritten(_PLAN, ("expert.argsort(stable=True)", "torch.arange(len(expert))")),
    ),
    Mutant("averaged", "Gradients of all else are averaged over ranks.", AVERAGED),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS),
)
