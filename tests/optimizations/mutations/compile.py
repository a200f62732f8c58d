"""Compiled regions, wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from assay.config import Run
from assay.model import Embedding
from assay.step.compiled import Captures
from assay.step.program import Program
from optimizations.mutations.mutant import Clock, Mutant, applied, rewritten

_NAME, _APPLY = "compile", "assay.optimizations.compile:Compile.apply"
_KINDS, _MADE = "else (Embedding, Block, Head)", "captures.compile(region.forward)"
_FIRST = "[one for one in part.modules() if isinstance(one, Block)][0]"
_WHOLE = {"stack": "compile:regions=model"}


def _eager_late(patch: pytest.MonkeyPatch) -> None:
    clock, honest = Clock(patch), Captures.compile

    def compiled(self: Captures, forward: Callable[..., Any]) -> Callable[..., Any]:
        made = honest(self, forward)
        return lambda *given: (forward if clock.late else made)(*given)

    patch.setattr(Captures, "compile", compiled)


def _narrow(forward: Callable[..., Any]) -> Callable[..., Any]:
    def narrow(*given: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return forward(*given)

    return narrow


def _detached(region: nn.Module) -> Callable[..., Any]:
    honest = region.forward
    return (lambda ids: honest(ids).detach()) if isinstance(region, Embedding) else honest


def _other_epsilon(program: Program, run: Run) -> Program:
    for norm in (one for part in program.parts for one in part.modules() if isinstance(one, nn.LayerNorm)):
        norm.eps = 1e-4
    return program


MUTANTS = (
    Mutant(
        "blocks plain",
        "Only the embedding and the head are compiled.",
        rewritten(_APPLY, (_KINDS, "else (Embedding, Head)")),
    ),
    Mutant(
        "first block only",
        "Of the blocks only the first is compiled.",
        rewritten(
            _APPLY, ("isinstance(module, kinds)", f"(isinstance(module, Embedding | Head) or module is {_FIRST})")
        ),
    ),
    Mutant("head plain", "The head is left as it was written.", rewritten(_APPLY, (_KINDS, "else (Embedding, Block)"))),
    Mutant(
        "the compiler's noise",
        "Dropout's noise is the compiler's own.",
        rewritten(_APPLY, ('"fallback_random": True', '"fallback_random": False')),
        {"model": {"dropout": 0.1}},
    ),
    Mutant(
        "bfloat16",
        "Compiled products are in bfloat16.",
        rewritten(_APPLY, (_MADE, "captures.compile(narrow(region.forward))"), narrow=_narrow),
    ),
    Mutant(
        "embedding detached",
        "No gradient flows into the compiled embedding.",
        rewritten(_APPLY, (_MADE, "captures.compile(detached(region))"), detached=_detached),
    ),
    Mutant("other epsilon", "Compiled norms have an epsilon of 1e-4.", applied(_NAME, _other_epsilon)),
    Mutant(
        "blocks, not the model",
        "Where the whole model was asked for, each block is a region of its own.",
        rewritten(_APPLY, ("kinds = (GPT,) if", "kinds = (Embedding, Block, Head) if")),
        _WHOLE,
    ),
    Mutant(
        "model in bfloat16",
        "Products of the one region are in bfloat16.",
        rewritten(_APPLY, (_MADE, "captures.compile(narrow(region.forward))"), narrow=_narrow),
        _WHOLE,
    ),
    Mutant(
        "model compiled for nothing",
        "The whole model is compiled, and another forward is called.",
        rewritten(_APPLY, (f"region.forward = {_MADE}", _MADE)),
        _WHOLE,
    ),
    Mutant("eager late", "Late in the run all regions run as they were written.", _eager_late, late=True),
)
