"""Models of a user's own: losses that do not add up over micro-batches, and techniques that are wrong with own models.

A loss that does not add up is right by itself, and gradient accumulation computes another one. Its control is
accumulation with a loss that does.
"""

from pathlib import Path

import torch
from torch import Tensor

from assay.step.program import MicroBatch, Step
from mutants.mutant import EVERY, Fault, Mutant, drawn, last
from mutants.seams import Evaluate, Update, batches, evaluations, gradients, passes, rates, rows, scaled, updates

_FILE = Path(__file__).with_name("own_models.py")
_WAVES, _CLASSES = f"{_FILE}:waves", f"{_FILE}:classes"
_ROWS = ("training.batch_size=16", "training.learning_rate=0.003")


def _not_additive(name: str, says: str, control: str = _WAVES, of: int = 24, parts: int = 2) -> Mutant:
    accumulated = f"gradient_accumulation:micro_batches={parts}"
    return Mutant(f"accumulated {name}", says, accumulated, None, EVERY, of, _ROWS, f"{_FILE}:{name}", control)


def _wrong(
    name: str, says: str, technique: str, fault: Fault, steps: object = EVERY, of: int = 24, model: str = _WAVES
) -> Mutant:
    return Mutant(name, says, technique, fault, steps, of, _ROWS, model)  # type: ignore[arg-type]


def _no_update(step: Step, honest: Update) -> Tensor:
    with rates(step, 0.0):
        return honest(step)


def _targets_shuffled(inputs: Tensor, targets: Tensor) -> MicroBatch:
    return inputs, torch.cat([targets[1:2], targets[:1], targets[2:]])


def _partial_left_out(step: Step, windows: list[MicroBatch], honest: Evaluate) -> tuple[float, int]:
    return 0.0, 0


def _partial_counts_whole(step: Step, windows: list[MicroBatch], honest: Evaluate) -> tuple[float, int]:
    found = [honest(step, [one]) for one in windows]
    most = max(len(inputs) for inputs, _ in windows)
    return sum(loss / count for loss, count in found) * most, most * len(found)


def _lower(step: Step, windows: list[MicroBatch], honest: Evaluate) -> tuple[float, int]:
    loss, targets = honest(step, windows)
    return 0.9 * loss, targets


MUTANTS = (
    _not_additive("ignored", "A third of the labels is ignored, all of them in the first micro-batch.", _CLASSES),
    _not_additive("seldom_ignored", "Labels are ignored in seven steps in the middle.", _CLASSES),
    _not_additive("weighted", "The mean is divided by the batch's sum of weights.", _CLASSES),
    _not_additive("contrastive", "Rows are told apart from the other rows of a micro-batch.", _CLASSES),
    _not_additive("batch_norm", "A norm sees the statistics of a micro-batch."),
    _not_additive("spread", "The variance is that of a micro-batch."),
    _not_additive("standardized", "Targets are standardized by micro-batch."),
    _not_additive("hardest", "The hardest quarter is that of a micro-batch.", parts=4),
    _not_additive("correlation", "The correlation is that of a micro-batch."),
    _not_additive("root", "The root is taken for each micro-batch."),
    _not_additive("summed", "The loss is a sum and not a mean."),
    _wrong("own model idles", "Nothing is updated in eight steps.", "lion", updates(_no_update), drawn(8, 24, seed=81)),
    _wrong(
        "own targets exchanged",
        "Two rows have each other's targets.",
        "fused_adamw",
        rows(_targets_shuffled),
        drawn(10, 40, seed=82),
        40,
    ),
    _wrong(
        "own batch again",
        "The batch of two steps earlier is trained again.",
        "sgd",
        batches(lambda honest, step, share: honest(step - 2, share)),
        drawn(8, 24, seed=83),
    ),
    _wrong(
        "own blocks larger",
        "Gradients of a block are 2 % too large.",
        "activation_checkpointing",
        scaled("blocks.1.", 1.02),
    ),
    _wrong(
        "own bias flips at last",
        "The gradient of the head's bias has the opposite sign at last.",
        "foreach_adamw",
        scaled("head.bias", -1.0),
        last(8),
    ),
    _wrong(
        "own micro-batch lost",
        "The last micro-batch is left out, and the other counts double.",
        "gradient_accumulation:micro_batches=2",
        passes(lambda step, micro, tokens, honest: 2 * honest(step, micro[:1], tokens // 2)),
        drawn(8, 24, seed=84),
    ),
    _wrong(
        "own partial batch left out",
        "The last, partial batch is not evaluated.",
        "lion",
        evaluations(_partial_left_out, first=2),
    ),
    _wrong(
        "own partial batch whole",
        "The partial batch counts as a whole one.",
        "bf16_mixed",
        evaluations(_partial_counts_whole, first=2),
    ),
    _wrong(
        "own loss lower",
        "The validation loss is a tenth too low, but for the check.",
        "fused_adamw",
        evaluations(_lower),
        range(24),
    ),
    _wrong(
        "own gradients dropped",
        "Small gradients become zero in mixed precision.",
        "bf16_mixed",
        gradients(
            lambda weights: [one.grad.mul_(one.grad.abs() > 1e-3) for one in weights.values() if one.grad is not None]
        ),
        range(4, 24),
    ),
)
