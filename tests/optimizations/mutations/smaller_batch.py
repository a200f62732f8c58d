"""A smaller batch, wrong."""

from dataclasses import replace
from typing import Any

import torch

from assay.config import Run
from assay.step.program import Program
from optimizations.mutations.mutant import Mutant, applied, rewritten

_NAME = "smaller_batch"
_APPLY = "assay.optimizations.smaller_batch:SmallerBatch.apply"
_ROWS = "whole(step, (share[0] * factor, share[1] * factor))"


def _halved_rate(program: Program, run: Run) -> Program:
    honest = program.schedule
    return replace(program, schedule=lambda step: honest(step) / 2)


def _whole_count(program: Program, run: Run) -> Program:
    honest = program.gradients
    return replace(program, gradients=lambda step, rows, tokens: honest(step, rows, 2 * tokens))


def _twice(rows: Any) -> Any:
    return [tuple(torch.cat((one, one)) for one in pair) for pair in rows]


def _short(rows: Any) -> Any:
    return [tuple(one[:, : one.shape[1] // 2] for one in pair) for pair in rows]


MUTANTS = (
    Mutant(
        "stands still",
        "Every step trains on the first batch.",
        rewritten(_APPLY, ("whole(step,", "whole(0,")),
    ),
    Mutant(
        "skips steps",
        "Every second batch is left out.",
        rewritten(_APPLY, ("whole(step,", "whole(2 * step,")),
    ),
    Mutant(
        "rows repeated",
        "The half of the batch is trained on twice.",
        rewritten(_APPLY, (_ROWS, f"twice({_ROWS})"), twice=_twice),
    ),
    Mutant(
        "half the length",
        "All sequences are trained on, and only their first halves.",
        rewritten(_APPLY, (_ROWS, "short(whole(step, share))"), short=_short),
    ),
    Mutant(
        "a quarter",
        "One sequence in four is trained on where one in two was asked for.",
        rewritten(_APPLY, (_ROWS, "whole(step, (share[0] * factor, 2 * share[1] * factor))")),
    ),
    Mutant(
        "targets not shifted",
        "The targets are the inputs themselves.",
        rewritten(_APPLY, (_ROWS, f"[(ids, ids) for ids, _ in {_ROWS}]")),
    ),
    Mutant("whole count", "The loss is divided by the tokens of the whole batch.", applied(_NAME, _whole_count)),
    Mutant("slower", "The learning rate is halved with the batch.", applied(_NAME, _halved_rate)),
)
