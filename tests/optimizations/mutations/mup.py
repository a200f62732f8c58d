"""Maximal update parametrization, wrong."""

from dataclasses import replace

import torch

from assay.config import Run
from assay.step.program import Program, Step
from optimizations.mutations.mutant import Clock, Mutant, applied, rewritten

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
)
