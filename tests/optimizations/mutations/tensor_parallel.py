"""Tensor parallelism, wrong."""

from dataclasses import replace
from typing import Any

from torch import nn

from assay.config import Run
from assay.model.gpt import MLP
from assay.step.program import Program
from optimizations.mutations.mutant import Mutant, applied, replaced, rewritten, together
from optimizations.mutations.spread import CLIPPED, NORM_OF_PIECES

_NAME, _SPLIT = "tensor_parallel", "assay.optimizations.tensor_parallel.step:split_matrices"
_PLAN = "assay.optimizations.tensor_parallel.step:_block_plan"
_NORMED = {"model": {"qk_norm": True}}


def _bias_added_twice(program: Program, run: Run) -> Program:
    """A row-split layer's bias belongs to the sum, and not to each of its summands."""
    for down in (one.down for part in program.parts for one in part.modules() if isinstance(one, MLP)):
        down.register_forward_hook(_with_bias)
    return program


def _with_bias(layer: nn.Linear, given: Any, result: Any) -> Any:
    return result + layer.bias.to_local()  # type: ignore[operator]


def _averaged(program: Program, run: Run) -> Program:
    honest = program.gradients
    return replace(program, gradients=lambda step, rows, tokens: honest(step, rows, 2 * tokens))


MUTANTS = (
    Mutant(
        "first block only",
        "Only the first block's matrices are split.",
        rewritten(
            _SPLIT,
            (
                "if isinstance(module, Block):",
                "if isinstance(module, Block) and module is next("
                "one for one in part.modules() if isinstance(one, Block)):",
            ),
        ),
    ),
    Mutant(
        "last block forgotten",
        "The last block's matrices stay whole.",
        rewritten(
            _SPLIT,
            (
                "if isinstance(module, Block):",
                "if isinstance(module, Block) and module is not "
                "[one for one in part.modules() if isinstance(one, Block)][-1]:",
            ),
        ),
    ),
    Mutant(
        "attention only",
        "The MLPs' matrices stay whole.",
        rewritten(
            _PLAN,
            ('("attention.qkv", "mlp.up", "mlp.gate")', '("attention.qkv",)'),
            ('("attention.projection", "mlp.down")', '("attention.projection",)'),
        ),
    ),
    Mutant(
        "heads' norms apart",
        "Gradients of the norms of queries and keys are not summed.",
        replaced("assay.optimizations.tensor_parallel.step:_partial_gradients", lambda step: []),
        _NORMED,
    ),
    Mutant("norm of pieces", "Each rank clips by the norm of its own pieces.", NORM_OF_PIECES, CLIPPED),
    Mutant(
        "ties cut",
        "Splitting leaves two weights where there was a tied one.",
        together(
            replaced("assay.optimizations.tensor_parallel.step:_tie_again", lambda part, tied: None),
            applied(_NAME, lambda program, run: replace(program, weights=replace(program.weights, tied=()))),
        ),
    ),
    Mutant("bias twice", "The bias of a row-split layer is added by each rank.", applied(_NAME, _bias_added_twice)),
    Mutant("averaged", "Gradients are divided by the number of ranks.", applied(_NAME, _averaged)),
    Mutant(
        "embedding whole",
        "Every rank holds the whole embedding.",
        rewritten(
            _SPLIT, ("parallelize_module(module.token, mesh, RowwiseParallel(input_layouts=Replicate()))", "pass")
        ),
        {"model": {"tie_embeddings": False}},
    ),
)
