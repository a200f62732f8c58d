"""Maximal update parametrization, wrong."""

from dataclasses import replace

import torch

from assay.config import Run
from assay.model.attention import HandCodedAttention
from assay.model.loss import VocabularyProjection
from assay.step.program import Program, Step
from optimizations.mutations.mutant import LAST, Clock, Mutant, applied, rewritten

RUN = {"model": {"tie_embeddings": False}, "stack": "mup:base_width=8"}

_APPLY = "assay.optimizations.mup:MuP.apply"
_FACTORS = "rates.get(name, 1.0)"
_OF_RECIPES = "assay.optimizers.recipes:at_factors"


def _at_the_rate_of_the_run(program: Program, run: Run, clock: Clock) -> Program:
    honest = program.update

    def update(step: Step) -> torch.Tensor:
        for group in step.optimizer.param_groups if clock.late else ():
            group["lr"] = program.schedule(clock.step)
        return honest(step)

    return replace(program, update=update)


def _with_smaller_logits(program: Program, run: Run) -> Program:
    for one in (one for part in program.parts for one in part.modules() if isinstance(one, VocabularyProjection)):
        one.forward = lambda x, honest=one.forward: 0.25 * honest(x)  # type: ignore[misc]
    return program


def _with_smaller_scores(program: Program, run: Run) -> Program:
    for core in (one for part in program.parts for one in part.modules() if isinstance(one, HandCodedAttention)):
        core.forward = lambda q, k, v, honest=core.forward: honest(q * q.size(-1) ** -0.5, k, v)  # type: ignore[misc]
    return program


def _first_step_only(program: Program, run: Run, clock: Clock) -> Program:
    honest = program.update

    def update(step: Step) -> torch.Tensor:
        for group in step.optimizer.param_groups if clock.late else ():
            group.pop("rate_factor", None)
        return honest(step)

    return replace(program, update=update)


def _slightly_faster(program: Program, run: Run, clock: Clock) -> Program:
    honest = program.update

    def update(step: Step) -> torch.Tensor:
        groups = [one for one in step.optimizer.param_groups if clock.late and one["rate_factor"] != 1]
        before = [one["lr"] for one in groups]
        for one in groups:
            one["lr"] *= 1.02
        norm = honest(step)
        for one, rate in zip(groups, before, strict=True):
            one["lr"] = rate
        return norm

    return replace(program, update=update)


MUTANTS = (
    Mutant(
        "rates of the run",
        "All parameters learn at the run's rate.",
        rewritten(_OF_RECIPES, (_FACTORS, "1.0")),
    ),
    Mutant(
        "initial weights of the run",
        "Initial weights are those of plain training.",
        rewritten(_APPLY, ("honest(name, shape) * initial.get(name, 1.0)", "honest(name, shape)")),
    ),
    Mutant(
        "head by the root",
        "The projection to the vocabulary starts as matrices of blocks do.",
        rewritten(
            _APPLY, ("initial.get(name, 1.0)", "min(1.0, initial.get(name, 1.0) ** 0 * self._ratio(run) ** 0.5)")
        ),
    ),
    Mutant(
        "head at the run's rate",
        "The projection to the vocabulary learns at the run's rate.",
        rewritten(_OF_RECIPES, (_FACTORS, "1.0 if name.startswith('head') else rates.get(name, 1.0)")),
    ),
    Mutant(
        "decay along",
        "Decay is not enlarged where the rate is smaller.",
        rewritten(_OF_RECIPES, ('whole["weight_decay"] / factor', 'whole["weight_decay"]')),
    ),
    Mutant(
        "embeddings too",
        "Embeddings learn at the smaller rate as well.",
        rewritten(_OF_RECIPES, (_FACTORS, "rates.get(name, 0.25 if name.startswith('embedding') else 1.0)")),
    ),
    Mutant(
        "root of the rate",
        "Rates follow the root of the width, as initial sizes do.",
        rewritten(_OF_RECIPES, (_FACTORS, "rates.get(name, 1.0) ** 0.5")),
    ),
    Mutant(
        "rates of the run late",
        "Late in the run all parameters learn at the run's rate.",
        applied("mup", _at_the_rate_of_the_run, late=True),
        late=True,
    ),
    Mutant(
        "logits along",
        "Logits are multiplied by the ratio of widths as well, beside the head's initial weights.",
        applied("mup", _with_smaller_logits),
    ),
    Mutant(
        "attention by the width",
        "Scores of attention are divided by the width of a head, and not by its root.",
        applied("mup", _with_smaller_scores),
    ),
    Mutant(
        "decay twice",
        "Decay is divided by the square of the ratio.",
        rewritten(_OF_RECIPES, ('whole["weight_decay"] / factor', 'whole["weight_decay"] / factor**2')),
    ),
    Mutant(
        "residual projections as they are",
        "Matrices that write to the residual stream start as in plain training.",
        rewritten(
            _APPLY,
            ("initial.get(name, 1.0)", "(1.0 if 'down' in name or '.projection' in name else initial.get(name, 1.0))"),
        ),
    ),
    Mutant(
        "factors after the first step",
        "Factors of the rate hold for the first step only.",
        applied("mup", _first_step_only, late=True, since=1),
        late=True,
    ),
    Mutant(
        "slightly faster in the last step",
        "From step 7 on matrices learn a fiftieth faster than their groups say.",
        applied("mup", _slightly_faster, late=True, since=LAST),
        late=True,
    ),
)
