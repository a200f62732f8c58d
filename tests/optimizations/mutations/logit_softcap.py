"""A cap of logits, wrong.

References have the model's own cap, so a wrong formula stands in the program that the technique makes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from assay.config import Run
from assay.model.loss import VocabularyProjection
from assay.step.program import Program
from optimizations.mutations.mutant import LAST, LATE, Break, Mutant, applied, rewritten

_APPLY = "assay.optimizations.logit_softcap:LogitSoftcap.apply"
_IN_PIECES = {"stack": "logit_softcap:cap=0.1+chunked_cross_entropy"}
_CAP = 0.1

RUN = {"stack": f"logit_softcap:cap={_CAP}"}
"""Logits of a model that is hardly trained are small, so a cap of 30 would change little."""


def _bent(change: Callable[[Tensor], Tensor], *, late: bool = False, since: int = LATE) -> Break:
    """Logits bent in another way."""

    def alter(program: Program, run: Run, *clock: Any) -> Program:
        (projection,) = (
            one for part in program.parts for one in part.modules() if isinstance(one, VocabularyProjection)
        )
        honest = projection.forward

        def forward(x: Tensor) -> Tensor:
            if clock and not clock[0].late:
                return honest(x)
            return change(F.linear(x, projection.weight))

        projection.forward = forward  # type: ignore[method-assign]
        return program

    return applied("logit_softcap", alter, late=late, since=since)


def _straight_through(logits: Tensor) -> Tensor:
    return logits + (_CAP * (logits / _CAP).tanh() - logits).detach()


def _soft(x: Tensor) -> Tensor:
    return _CAP * (x / _CAP).tanh()


def _projected(change: Callable[[Any, Any, Tensor], Tensor]) -> Break:
    """Another forward of the projection; `change` takes it, its own forward and the input."""

    def alter(program: Program, run: Run) -> Program:
        for one in (one for part in program.parts for one in part.modules() if isinstance(one, VocabularyProjection)):
            one.forward = partial(change, one, one.forward)  # type: ignore[method-assign]
        return program

    return applied("logit_softcap", alter)


MUTANTS = (
    Mutant("no cap", "Nothing is capped.", rewritten(_APPLY, ("module.cap = self.cap", "pass"))),
    Mutant(
        "half of the cap",
        "The cap is half of what was asked for.",
        rewritten(_APPLY, ("module.cap = self.cap", "module.cap = self.cap / 2")),
    ),
    Mutant("not scaled back", "Logits stay between −1 and 1.", _bent(lambda logits: (logits / _CAP).tanh())),
    Mutant(
        "not divided",
        "The tanh is that of the logits, and not of their part of the cap.",
        _bent(lambda logits: _CAP * logits.tanh()),
    ),
    Mutant(
        "hard cap",
        "Logits are cut off at the cap, and not bent.",
        _bent(lambda logits: logits.clamp(-_CAP, _CAP)),
    ),
    Mutant("straight through", "Gradients pass the cap unchanged.", _bent(_straight_through)),
    Mutant(
        "pieces without a cap",
        "Chunks of the loss have logits without a cap.",
        rewritten("assay.model.loss:_bent", ("if cap is None", "if True")),
        _IN_PIECES,
    ),
    Mutant(
        "pieces straight through",
        "Gradients of chunks pass the cap unchanged.",
        rewritten("assay.model.loss:_InPieces.backward", ("None if ctx.cap is None else", "None if True else")),
        _IN_PIECES,
    ),
    Mutant("uncapped late", "Late in the run nothing is capped.", _bent(lambda logits: logits, late=True), late=True),
    Mutant(
        "another curve",
        "Logits approach the cap by a root in place of a tanh.",
        _bent(lambda logits: logits / (1 + (logits / _CAP).square()).sqrt()),
    ),
    Mutant(
        "evaluated without",
        "Evaluations cap nothing.",
        _projected(lambda projection, honest, x: honest(x) if projection.training else F.linear(x, projection.weight)),
        late=True,
    ),
    Mutant(
        "hidden states",
        "The head's input is capped, and logits are not.",
        _projected(lambda projection, honest, x: F.linear(_soft(x), projection.weight)),
    ),
    Mutant(
        "first piece without a cap",
        "Forward caps all chunks but the first.",
        rewritten("assay.model.loss:_InPieces.forward", ("weight.t(), cap)", "weight.t(), cap if loss else None)")),
        _IN_PIECES,
    ),
    Mutant(
        "slope without a square",
        "Backward of chunks takes off the tanh and not its square.",
        rewritten("assay.model.loss:_InPieces.backward", (".square_()", "")),
        _IN_PIECES,
    ),
    Mutant(
        "slightly larger in the last step",
        "From step 7 on the cap is a fiftieth larger.",
        _bent(lambda logits: 1.02 * _CAP * (logits / (1.02 * _CAP)).tanh(), late=True, since=LAST),
        late=True,
    ),
)
