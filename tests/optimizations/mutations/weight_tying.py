"""Tied embeddings, wrong."""

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from assay.config import Run
from assay.model import Embedding
from assay.model.gpt import Head
from assay.optimizers.bases import Joined
from assay.step.program import NamedParameters, OptimizerLike, Program
from optimizations.mutations.mutant import Mutant, applied, rewritten

RUN = {"model": {"tie_embeddings": False}}

_NAME, _OWNER, _ALIAS = "weight_tying", "embedding.token.weight", "head.projection.weight"
_APPLY = "assay.optimizations.weight_tying:WeightTying.apply"


def _module(program: Program, kind: Any) -> Any:
    return next(one for part in program.parts for one in part.modules() if isinstance(one, kind))


def _head_detached(program: Program, run: Run) -> Program:
    projection = _module(program, Head).projection
    projection.forward = lambda x: F.linear(x, projection.weight.detach())
    return program


def _embedding_detached(program: Program, run: Run) -> Program:
    token = _module(program, Embedding).token
    token.forward = lambda ids: F.embedding(ids, token.weight.detach())
    return program


def _scaled(program: Program, run: Run) -> Program:
    projection = _module(program, Head).projection
    projection.forward = lambda x: F.linear(x * run.model.n_embd**-0.5, projection.weight)
    return program


def _of_the_head(program: Program, run: Run) -> Program:
    honest = program.weights.initialize

    def initialize(name: str, shape: Any) -> Tensor:
        return honest(_ALIAS if name == _OWNER else name, shape)

    return replace(program, weights=replace(program.weights, initialize=initialize))


def _twice(program: Program, run: Run) -> Program:
    recipe = program.optimizer

    def optimizer(parameters: NamedParameters) -> OptimizerLike:
        return Joined([recipe(parameters), recipe([one for one in parameters if one[0] == _OWNER])])

    return replace(program, optimizer=optimizer)


MUTANTS = (
    Mutant(
        "two copies",
        "Both matrices begin as one, and then train apart.",
        rewritten(
            _APPLY,
            ("tie(part, TIED)", "pass"),
            (
                "replace(program.weights, tied=TIED)",
                "replace(program.weights, initialize=lambda name, shape: honest("
                "'embedding.token.weight' if name == 'head.projection.weight' else name, shape))",
            ),
            ("    for part in", "    honest = program.weights.initialize\n    for part in"),
        ),
    ),
    Mutant("head detached", "The shared weight learns nothing as an output.", applied(_NAME, _head_detached)),
    Mutant("embedding detached", "The shared weight learns nothing as an input.", applied(_NAME, _embedding_detached)),
    Mutant("logits scaled", "Logits are divided by the root of the width, as in T5.", applied(_NAME, _scaled)),
    Mutant("begins as the head", "The shared weight begins as the output's did.", applied(_NAME, _of_the_head)),
    Mutant("updated twice", "Each update moves the shared weight twice.", applied(_NAME, _twice)),
)
