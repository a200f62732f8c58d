"""Mid-run faults: they act in some steps in the middle only, after the first steps that are checked."""

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.step.program import MicroBatch, Program, Step
from assay.training.gradients import updater
from mutants.mutant import SMALL, Clock, Mutant, drawn
from mutants.seams import (
    Pass,
    Rows,
    Update,
    after_update,
    batches,
    clear,
    other_weights,
    passes,
    rates,
    rows,
    scaled,
    together,
    updates,
)


def _no_update(step: Step, honest: Update) -> Tensor:
    norm = step.program.gradient_norm(step)
    clear(step)
    return norm


def _weights_stay(step: Step, honest: Update) -> Tensor:
    before = [one.detach().clone() for _, one in step.named_parameters()]
    norm = honest(step)
    with torch.no_grad():
        for (_, one), value in zip(step.named_parameters(), before, strict=True):
            one.copy_(value)
    return norm


def _row_repeated(ids: Tensor, targets: Tensor) -> MicroBatch:
    ids[-1], targets[-1] = ids[0], targets[0]
    return ids, targets


def _target_shifted(ids: Tensor, targets: Tensor) -> MicroBatch:
    targets[3] = ids[3]
    return ids, targets


def _reversed(ids: Tensor, targets: Tensor) -> MicroBatch:
    ids[1] = ids[1].flip(0)
    return ids, targets


def _rounds(step: Step) -> None:
    for _, one in step.named_parameters():
        one.copy_(one.bfloat16())


def _resets(step: Step) -> None:
    for state in step.optimizer.state.values():
        state["exp_avg"].zero_()


def _keeps_second_moment(step: Step, honest: Update) -> Tensor:
    before = {one: state["exp_avg_sq"].clone() for one, state in step.optimizer.state.items()}
    norm = honest(step)
    for one, value in before.items():
        step.optimizer.state[one]["exp_avg_sq"].copy_(value)
    return norm


def _other_rate(factor: float, step: Step, honest: Update) -> Tensor:
    with rates(step, factor):
        return honest(step)


def _no_decay(step: Step, honest: Update) -> Tensor:
    before = [group["weight_decay"] for group in step.optimizer.param_groups]
    for group in step.optimizer.param_groups:
        group["weight_decay"] = 0.0
    norm = honest(step)
    for group, decay in zip(step.optimizer.param_groups, before, strict=True):
        group["weight_decay"] = decay
    return norm


def _part_left_out(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    kept = micro[:-1]
    share = len(kept) / (len(kept) + 1)
    return honest(step, kept, int(tokens * share)) / share


def _coarse_forward(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    # Five bits of mantissa, where bfloat16 has eight.
    def coarse(name: str, weight: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(weight)
        return torch.ldexp((mantissa * 32).round() / 32, exponent)

    with other_weights(step, coarse):
        return honest(step, micro, tokens)


def _stale_added(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    kept: dict[str, Tensor] = {}

    def change(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
        loss = honest(step, micro, tokens)
        for name, one in step.named_parameters():
            if one.grad is not None:
                one.grad, kept[name] = one.grad + kept.get(name, 0.0), one.grad.clone()
        return loss

    return passes(change)(program, run, clock)


def _dropout_off(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    for part in step.parts:
        part.eval()
    loss = honest(step, micro, tokens)
    for part in step.parts:
        part.train()
    return loss


_HALF = "gradient_accumulation:micro_batches=2"

MUTANTS = (
    Mutant(
        "lion idles", "The weights are not updated in eight steps.", "lion", updates(_no_update), drawn(8, 24, seed=1)
    ),
    Mutant(
        "fused weights stay",
        "Moments move and weights are put back in eight steps.",
        "fused_adamw",
        updates(_weights_stay),
        drawn(8, 24, seed=2),
    ),
    Mutant(
        "row trained twice",
        "The last row of a batch is a copy of its first.",
        "sdpa_attention",
        rows(_row_repeated),
        drawn(8, 24, seed=3),
    ),
    Mutant(
        "targets are inputs",
        "One row of eight has its inputs as targets.",
        "bf16_mixed",
        rows(_target_shifted),
        drawn(12, 48, seed=4),
        48,
    ),
    Mutant(
        "row backwards",
        "One row of eight has its tokens backwards.",
        "activation_checkpointing",
        rows(_reversed),
        drawn(10, 32, seed=5),
        32,
    ),
    Mutant(
        "earlier batch again",
        "The batch of four steps earlier is trained again.",
        "foreach_adamw",
        batches(lambda honest, step, share: honest(step - 4, share)),
        drawn(9, 24, seed=6),
    ),
    Mutant(
        "rounds every 16th",
        "Weights are rounded to bfloat16 after every 16th step.",
        "fused_adamw",
        after_update(_rounds),
        range(15, 60, 16),
        60,
    ),
    Mutant(
        "rounds every 4th",
        "Weights are rounded to bfloat16 after every fourth step.",
        "sgd",
        after_update(_rounds),
        range(7, 40, 4),
        41,
    ),
    Mutant(
        "MLP half as much again",
        "Gradients of the MLPs are multiplied by 1.5 in the middle.",
        "activation_checkpointing",
        scaled(".mlp.", 1.5),
        range(6, 18),
    ),
    Mutant(
        "moment reset", "The first moment is set to zero once.", "foreach_adamw", after_update(_resets), range(11, 12)
    ),
    Mutant(
        "doubled rate",
        "The update has twice the learning rate, and the groups say the right one.",
        "lion",
        updates(lambda step, honest: _other_rate(2.0, step, honest)),
        drawn(10, 24, seed=7),
    ),
    Mutant(
        "SGD climbs",
        "Every fifth update has the opposite sign.",
        "sgd",
        updates(lambda step, honest: _other_rate(-1.0, step, honest)),
        range(5, 45, 5),
        48,
    ),
    Mutant(
        "Muon forgets decay",
        "Nothing decays in twelve steps.",
        "muon",
        updates(_no_decay),
        range(10, 22),
        32,
        (*SMALL, "training.weight_decay=1.0"),
    ),
    Mutant(
        "unclipped",
        "Gradients are not clipped in the middle.",
        "fused_adamw",
        updates(lambda step, honest: updater(0.0)(step)),
        range(6, 18),
    ),
    Mutant(
        "micro-batch lost",
        "The last of two micro-batches is left out, and the other counts double.",
        _HALF,
        passes(_part_left_out),
        drawn(8, 24, seed=8),
    ),
    Mutant(
        "stale gradients",
        "Gradients of the faulty step before are added.",
        _HALF,
        _stale_added,
        range(8, 16),
    ),
    Mutant(
        "five bits",
        "The forward uses weights of five bits of mantissa instead of eight.",
        "bf16_mixed",
        passes(_coarse_forward),
        drawn(16, 40, seed=9),
        40,
    ),
    Mutant(
        "second moment frozen",
        "The second moment stays what it was.",
        "adam",
        updates(_keeps_second_moment),
        range(8, 24),
        32,
    ),
    Mutant(
        "dropout rests",
        "Dropout is off in the middle.",
        "fused_adamw",
        passes(_dropout_off),
        drawn(8, 24, seed=10),
        settings=(*SMALL, "model.dropout=0.1"),
    ),
    Mutant(
        "two small faults",
        "One row is repeated and the rate is a tenth higher.",
        "muon",
        together(rows(_row_repeated), updates(lambda step, honest: _other_rate(1.1, step, honest))),
        drawn(8, 24, seed=11),
    ),
)
