"""A learning rate of an optimizer's own, in the shape of the run's schedule.

Warm-up, cosine and minimum are the run's times one factor. Decoupled decay shrinks a weight by η·λ a step. An optimizer
whose learning rate is k times as large takes λ/k, so that weights shrink as before (arXiv:2302.06675).
"""

from dataclasses import replace

from assay.config import TrainingConfig
from assay.step.program import Program


def at_rate(training: TrainingConfig, learning_rate: float) -> TrainingConfig:
    """Return the training with another peak learning rate.

    The minimum stays in proportion to the peak, and the decay of a step, η·λ, stays as it is.
    """
    factor = learning_rate / training.learning_rate
    changes = {
        "learning_rate": learning_rate,
        "min_learning_rate": training.min_learning_rate * factor,
        "weight_decay": training.weight_decay / factor,
    }
    return training.model_copy(update=changes)


def rescheduled(program: Program, factor: float) -> Program:
    """Return the program with every step's learning rate multiplied by `factor`."""
    inner = program.schedule
    return replace(program, schedule=lambda step: factor * inner(step))
