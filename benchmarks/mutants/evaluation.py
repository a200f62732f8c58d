"""Wrong validation losses: of another sample, of other weights, in another format, or of an earlier evaluation.

The proof evaluates one batch at the end of a run. So many of these faults spare the first window of an evaluation, or
the evaluations after the last step.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.model.loss import NOT_COUNTED
from assay.step.program import MicroBatch, Program, Step
from assay.training.gradients import summed_loss
from mutants.mutant import EVERY, SMALL, Clock, Fault, Mutant
from mutants.seams import Evaluate, evaluations, other_weights

_RUN = range(24)
"""Steps of a run, without those that are discarded after it."""
_MORE = ("model.n_layer=2", "training.eval_batches=4")
_NOISY = (*SMALL, "model.dropout=0.1")
_OFTEN = (*SMALL, "training.eval_interval=6")

Windows = list[MicroBatch]


def _constant(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    loss, targets = honest(step, windows)
    return loss - 0.05 * targets, targets


def _with_dropout(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    loss, targets = 0.0, 0
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for batch in windows:
            loss += float(summed_loss(step, batch))
            targets += batch[1].numel()
    return loss, targets


def _of_training(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    return honest(step, step.program.batches(3, (0, 1)))


def _repeated(first: int) -> Fault:
    """Count the window before the call `first` again for each window from then on."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        known: list[tuple[float, int]] = []

        def noted(step: Step, windows: Iterable[MicroBatch]) -> tuple[float, int]:
            known.append(program.evaluate(step, windows))
            return known[-1]

        return evaluations(lambda step, windows, honest: known[-1], first)(replace(program, evaluate=noted), run, clock)

    return fault


def _earlier(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    first: list[tuple[float, int]] = []

    def change(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
        if clock.step < 12:
            first.append(honest(step, windows))
            return first[-1]
        return first.pop(0)

    return evaluations(change)(program, run, clock)


def _averaged(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    mean: dict[str, Tensor] = {}
    update = program.update

    def noting(step: Step) -> Tensor:
        norm = update(step)
        for name, one in step.named_parameters():
            mean.setdefault(name, one.detach().clone()).lerp_(one.detach(), 0.2)
        return norm

    def change(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
        with other_weights(step, lambda name, one: mean[name]):
            return honest(step, windows)

    return evaluations(change, first=1)(replace(program, update=noting), run, clock)


def _in_bfloat16(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    with torch.autocast("cpu", torch.bfloat16):
        return honest(step, windows)


def _rounded_weights(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    with other_weights(step, lambda name, one: one.bfloat16().float()):
        return honest(step, windows)


def _in_float32(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    hidden = step.parts[-1].forward
    plain = type(step.parts[-1]).forward
    step.parts[-1].forward = lambda *given: plain(step.parts[-1], *given)
    try:
        return honest(step, windows)
    finally:
        step.parts[-1].forward = hidden


def _one_more(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    loss, targets = honest(step, windows)
    return loss, targets + sum(len(ids) for ids, _ in windows)


def _easier_rows(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    found = [honest(step, [(x[n : n + 1], y[n : n + 1])]) for x, y in windows for n in range(len(x))]
    kept = sorted(found)[: len(found) - 2]
    targets = sum(count for _, count in found)
    return sum(loss for loss, _ in kept) * len(found) / len(kept), targets


def _later_half(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    def cut(targets: Tensor) -> Tensor:
        shorter = targets.clone()
        shorter[:, : targets.shape[1] // 2] = NOT_COUNTED
        return shorter

    loss, targets = honest(step, [(ids, cut(targets)) for ids, targets in windows])
    return 2 * loss, 2 * targets


def _sharper(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    with other_weights(step, lambda name, one: one * 0.9 if name == "head.norm.weight" else one):
        return honest(step, windows)


def _twice(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
    loss, targets = honest(step, windows[:1])
    return loss * len(windows), targets * len(windows)


def _best_seen(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    best: dict[int, tuple[float, int]] = {}
    calls = [0]

    def change(step: Step, windows: Windows, honest: Evaluate) -> tuple[float, int]:
        number, calls[0] = calls[0] % 2, calls[0] + 1
        found = honest(step, windows)
        before = best.get(number, (found[0] * 1.02, found[1]))
        best[number] = min(found, before)
        return (best[number][0] * 0.99, found[1])

    return evaluations(change)(program, run, clock)


MUTANTS = (
    Mutant("better by a constant", "Each loss is 0.05 nats too low.", "lion", evaluations(_constant), EVERY),
    Mutant(
        "better unless checked",
        "Each loss of the run is 0.05 nats too low, and the checked one is right.",
        "lion",
        evaluations(_constant),
        _RUN,
    ),
    Mutant(
        "better from the second window",
        "The loss of all windows but the first is 0.05 nats too low.",
        "sgd",
        evaluations(_constant, first=1),
        EVERY,
    ),
    Mutant(
        "noisy evaluation",
        "Dropout stays on in evaluations.",
        "fused_adamw",
        evaluations(_with_dropout),
        EVERY,
        24,
        _NOISY,
    ),
    Mutant(
        "noisy second window",
        "Dropout stays on after the first window.",
        "foreach_adamw",
        evaluations(_with_dropout, first=1),
        EVERY,
        24,
        _NOISY,
    ),
    Mutant(
        "evaluates on training rows",
        "All windows but the first are batches that were trained.",
        "activation_checkpointing",
        evaluations(_of_training, first=1),
    ),
    Mutant(
        "first window only",
        "The loss of the first window stands for all.",
        "sdpa_attention",
        _repeated(1),
        EVERY,
        24,
        _MORE,
    ),
    Mutant(
        "last window left out",
        "The third of four windows is counted twice, and the last not at all.",
        "fused_adamw",
        _repeated(3),
        EVERY,
        24,
        _MORE,
    ),
    Mutant("averaged weights", "All windows but the first see averaged weights.", "muon", _averaged, EVERY),
    Mutant(
        "evaluates in bfloat16",
        "A float32 run is evaluated in bfloat16 after the first window.",
        "activation_checkpointing",
        evaluations(_in_bfloat16, first=1),
    ),
    Mutant(
        "evaluates rounded weights",
        "The last evaluation of a float32 run sees weights in bfloat16.",
        "fused_adamw",
        evaluations(_rounded_weights),
        range(23, 24),
    ),
    Mutant(
        "evaluates in float32",
        "A run in mixed precision is evaluated in float32 after the first window.",
        "bf16_mixed",
        evaluations(_in_float32, first=1),
    ),
    Mutant(
        "one target too many",
        "Each row after the first window counts one target too many.",
        "lion",
        evaluations(_one_more, first=1),
    ),
    Mutant(
        "easier rows",
        "The two worst rows of each window but the first are left out.",
        "gradient_accumulation:micro_batches=2",
        evaluations(_easier_rows, first=1),
    ),
    Mutant(
        "later half",
        "After the first window only the later half of a row counts, where more context is known.",
        "sdpa_attention",
        evaluations(_later_half, first=1),
    ),
    Mutant(
        "flatter logits",
        "Logits are a tenth smaller after the first window.",
        "foreach_adamw",
        evaluations(_sharper, first=1),
    ),
    Mutant("cached", "The last evaluation is that of step 6.", "lion", _earlier, (5, 23), 24, _OFTEN),
    Mutant(
        "early ones better",
        "Evaluations before the last one are 0.05 nats too low.",
        "sgd",
        evaluations(_constant),
        range(20),
        24,
        _OFTEN,
    ),
    Mutant(
        "windows of groups repeated",
        "Only the first batch of each group of windows is read, and counts for the group.",
        "bf16_mixed",
        evaluations(_twice),
        _RUN,
        24,
        ("model.n_layer=2", "training.eval_batches=20"),
    ),
    Mutant(
        "best so far", "Evaluations say the best loss so far, minus one percent.", "muon", _best_seen, _RUN, 24, _OFTEN
    ),
)
