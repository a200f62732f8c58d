"""Sequences divided over ranks, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten

RUN = {"stack": "context_parallel+sdpa_attention", "model": {"context_length": 128}}

_DIVIDE, _RING = (
    "assay.optimizations.context_parallel.step:divide_positions",
    "assay.optimizations.context_parallel.step:_ring",
)

MUTANTS = (
    Mutant(
        "gradients apart",
        "Gradients are not summed over the positions of other ranks.",
        rewritten(_DIVIDE, ("dist.all_reduce(local(parameter.grad), group=group)", "pass")),
        gpu=True,
    ),
    Mutant(
        "averaged",
        "Gradients are averaged over ranks, though each has divided by the tokens of all.",
        rewritten(
            _DIVIDE,
            (
                "dist.all_reduce(local(parameter.grad), group=group)",
                "dist.all_reduce(local(parameter.grad), op=dist.ReduceOp.AVG, group=group)",
            ),
        ),
        gpu=True,
    ),
    Mutant(
        "own positions",
        "Each rank takes its tokens for the first of their sequence.",
        rewritten(_DIVIDE, ("module.positions = positions", "module.positions = None")),
        gpu=True,
    ),
    Mutant(
        "no ring",
        "Attention sees the keys of its own rank only.",
        rewritten(
            _RING, ("_enable_context_parallel_dispatcher()", "pass"), ("_disable_context_parallel_dispatcher()", "pass")
        ),
        gpu=True,
    ),
    Mutant(
        "targets dealt otherwise",
        "Inputs and targets of a rank are of other positions.",
        rewritten(_DIVIDE, ("_own(mesh, targets))", "_own(mesh, targets.flip(1)))")),
        gpu=True,
    ),
)
