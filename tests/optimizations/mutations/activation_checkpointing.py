"""Activation checkpointing, wrong."""

from collections.abc import Callable
from typing import Any

import torch

from assay.config import Run
from assay.model import Block
from assay.model.backward import in_backward
from assay.step.program import Program
from optimizations.mutations.mutant import Clock, Mutant, applied, rewritten

_NAME = "activation_checkpointing"
_APPLY = "assay.optimizations.activation_checkpointing:ActivationCheckpointing.apply"
_EVERY = "blocks[:: self.every]"
_DROPOUT = {"model": {"dropout": 0.1}}


def _other_rate(blocks: list[Block]) -> None:
    """Give dropout another rate where backward repeats a block."""

    def set_rate(layer: torch.nn.Module, _: Any) -> None:
        layer.p = 0.2 if in_backward() else 0.1  # type: ignore[assignment]

    for layer in (one for block in blocks for one in block.modules() if isinstance(one, torch.nn.Dropout)):
        layer.register_forward_pre_hook(set_rate)


def _until_late(program: Program, run: Run, clock: Clock) -> Program:
    for part in program.parts:
        for block in (one for one in part.modules() if isinstance(one, Block)):
            block.forward = _by_turns(block, block.forward, clock)  # type: ignore[method-assign]
    return program


def _by_turns(block: Block, repeated: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    return lambda x: Block.forward(block, x) if clock.late else repeated(x)


MUTANTS = (
    Mutant(
        "other noise",
        "Recomputation draws other dropout masks than the forward did.",
        rewritten(_APPLY, ('"preserve_rng_state": noisy', '"preserve_rng_state": False')),
        _DROPOUT,
    ),
    Mutant(
        "other rate",
        "Recomputation drops twice as many activations as the forward did.",
        rewritten(_APPLY, ("    return program", "    other_rate(blocks)\n    return program"), other_rate=_other_rate),
        _DROPOUT,
    ),
    Mutant("first block only", "Only the first block is checkpointed.", rewritten(_APPLY, (_EVERY, "blocks[:1]"))),
    Mutant("every second block", "Every second block keeps all.", rewritten(_APPLY, (_EVERY, "blocks[::2]"))),
    Mutant("last block forgotten", "The last block keeps all.", rewritten(_APPLY, (_EVERY, "blocks[:-1]"))),
    Mutant(
        "other blocks",
        "Asked for the first of each two blocks, it takes the second.",
        rewritten(_APPLY, (_EVERY, "blocks[self.every - 1 :: self.every]")),
        {"stack": "activation_checkpointing:every=2"},
    ),
    Mutant(
        "MLP only",
        "Only the MLP of each block runs again.",
        rewritten(_APPLY, (_EVERY, "[block.mlp for block in blocks]")),
    ),
    Mutant("until late", "Late in the run blocks keep all.", applied(_NAME, _until_late, late=True), late=True),
)
