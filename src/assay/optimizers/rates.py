"""A learning rate of an optimizer's own, in the shape of the run's schedule.

Warm-up, cosine and minimum are those of the run times one factor. Decoupled decay shrinks a weight by η·λ a step; an
optimizer whose steps are k times as large takes a k-th of λ, so that weights shrink as they did (arXiv:2302.06675).
"""

from dataclasses import replace

from assay.config import TrainingConfig
from assay.step.program import Program


def at_rate(training: TrainingConfig, learning_rate: float) -> TrainingConfig:
    """The training at another largest learning rate, its minimum in proportion and its decay of a step kept."""
    factor = learning_rate / training.learning_rate
    changes = {
        "learning_rate": learning_rate,
        "min_learning_rate": training.min_learning_rate * factor,
        "weight_decay": training.weight_decay / factor,
    }
    return training.model_copy(update=changes)


def rescheduled(program: Program, factor: float) -> Program:
    """The program with every step's learning rate times `factor`."""
    inner = program.schedule
    return replace(program, schedule=lambda step: factor * inner(step))
