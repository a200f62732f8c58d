"""Figures that are read later, wrong."""

from dataclasses import replace
from typing import Any

import torch

from assay.config import Run
from assay.step.program import Program
from optimizations.mutations.mutant import Break, Mutant, applied, replaced, rewritten

_NAME, _CLIP = "deferred_metrics", "assay.training.gradients:_clip_unread"
_FACTOR = "torch.where(norm > clip, clip / (norm + CLIP_EPSILON), 1.0)"
_CLIPPED = {"training": {"gradient_clip": 0.1}}


def _read(change: Any) -> Break:
    """Have the figures of several steps read in another way."""
    return applied(
        _NAME,
        lambda program, run: replace(
            program, figures=replace(program.figures, read=lambda rows: change(rows).tolist())
        ),
    )


def _of_the_step_before() -> Any:
    known: list[torch.Tensor] = []

    def clip(step: Any, norm: torch.Tensor, clip: float) -> None:
        from assay.training.gradients import _shrink

        before, known[:] = (known or [norm])[0], [norm]
        _shrink(step, torch.clamp(clip / before, max=1.0))

    return clip


def _fewer(program: Program, run: Run) -> Program:
    return replace(program, figures=replace(program.figures, read_every=1))


MUTANTS = (
    Mutant("read at once", "Figures are read in every step.", applied(_NAME, _fewer)),
    Mutant("not clipped", "Gradients are not clipped.", replaced(_CLIP, lambda step, norm, clip: None), _CLIPPED),
    Mutant(
        "always clipped",
        "Gradients below the limit are enlarged to it.",
        rewritten(_CLIP, (_FACTOR, "clip / (norm + CLIP_EPSILON)")),
        {"training": {"gradient_clip": 10.0}},
    ),
    Mutant(
        "clipped twice",
        "The factor of clipping is squared.",
        rewritten(_CLIP, (_FACTOR, f"{_FACTOR} ** 2")),
        _CLIPPED,
    ),
    Mutant(
        "by the norm before",
        "Gradients are clipped by the norm of the step before.",
        lambda patch: replaced(_CLIP, _of_the_step_before())(patch),
        _CLIPPED,
    ),
    Mutant("one buffer", "All steps report the last one's figures.", _read(lambda rows: rows[-1:].expand_as(rows))),
    Mutant("in reverse", "Steps report each other's figures.", _read(lambda rows: rows.flip(0))),
    Mutant("mean", "All steps report the mean of their figures.", _read(lambda rows: rows.mean(0).expand_as(rows))),
    Mutant(
        "not clipped late",
        "Late in the run gradients are not clipped.",
        replaced(_CLIP, lambda step, norm, clip: None, late=True),
        _CLIPPED,
        late=True,
    ),
)
