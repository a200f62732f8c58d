"""Figures that are wrong because the program lies: its time, tokens, steps, norms, losses and memory.

Three of them exchange the clock of the module that times a step, in the measured process only.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.model.loss import NOT_COUNTED
from assay.step.program import MicroBatch, Program, Share, Step
from mutants.mutant import EVERY, Clock, Fault, Mutant, drawn
from mutants.seams import Pass, Rows, Source, Update, batches, evaluations, passes, rates, rows, together, updates

_MIDDLE = range(4, 24)
_LONG = range(4, 40)


def _slow_clock(rate: float) -> Fault:
    """Time steps by a clock that runs at `rate` in faulty steps."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        from assay.training import queued_step

        shown, read = [time.perf_counter()], [time.perf_counter()]

        def perf_counter() -> float:
            now = time.perf_counter()
            shown[0] += (now - read[0]) * (rate if clock.due else 1.0)
            read[0] = now
            return shown[0]

        queued_step.time = SimpleNamespace(perf_counter=perf_counter)  # type: ignore[assignment]
        return program

    return fault


def _update_untimed(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    from assay.training import queued_step

    left_out = [0.0]
    queued_step.time = SimpleNamespace(perf_counter=lambda: time.perf_counter() - left_out[0])  # type: ignore[assignment]

    def update(step: Step) -> Tensor:
        start = time.perf_counter()
        norm = program.update(step)
        left_out[0] += (time.perf_counter() - start) if clock.due else 0.0
        return norm

    return replace(program, update=update)


def _update_later(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    """Do the optimizer's step in a thread, for which the next step waits."""
    threads: list[threading.Thread] = []

    def settled() -> None:
        while threads:
            threads.pop().join()

    def schedule(step: int) -> float:
        settled()
        return program.schedule(step)

    def update(step: Step) -> Tensor:
        if not clock.due:
            return program.update(step)
        norm = step.program.gradient_norm(step)

        def work() -> None:
            time.sleep(0.0005)
            program.update(step)

        threads.append(threading.Thread(target=work))
        threads[0].start()
        return norm

    def evaluate(step: Step, windows: Iterable[MicroBatch]) -> tuple[float, int]:
        settled()
        return program.evaluate(step, windows)

    return replace(program, schedule=schedule, update=update, evaluate=evaluate)


def _batch_with_rate(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    """Make the batch while the learning rate is set, so that no step waits for its data."""
    made: dict[int, Rows] = {}

    def schedule(step: int) -> float:
        if clock.at(step):
            made.clear()
            made[step] = program.batches(step, program.parallel.share)
        return program.schedule(step)

    def ready(step: int, share: Share) -> Rows:
        return made.pop(step) if step in made else program.batches(step, share)

    return replace(program, schedule=schedule, batches=ready)


class _Twice(tuple[int, int]):
    """A share of one rank that says there are two, while `when` is true."""

    when: Callable[[], bool]

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        return 2 if index == 1 and self.when() else tuple.__getitem__(self, index)


def _tokens_twice(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    share = _Twice(program.parallel.share)
    share.when = lambda: clock.due

    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        if not clock.due:
            return program.gradients(step, micro, tokens)
        return 2 * program.gradients(step, micro, tokens // 2)

    return replace(program, parallel=replace(program.parallel, share=share), gradients=gradients)


def _loss_scaled(factor: float, step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    return factor * honest(step, micro, tokens)


def _norm_scaled(factor: float, step: Step, honest: Update) -> Tensor:
    return factor * honest(step)


def _norm_after_clipping(step: Step, honest: Update) -> Tensor:
    return honest(step).clamp(max=1.0)


def _step_left_out(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    known = [torch.zeros(()), torch.zeros(())]

    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        if not clock.due:
            known[0] = program.gradients(step, micro, tokens)
        return 0.999 * known[0]

    def update(step: Step) -> Tensor:
        if not clock.due:
            known[1] = program.update(step)
        return known[1]

    return replace(program, gradients=gradients, update=update)


def _loss_of_before(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    before: list[Tensor] = []

    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        before.append(program.gradients(step, micro, tokens))
        return before[-2] if clock.due and len(before) > 1 else before[-1]

    return replace(program, gradients=gradients)


def _rows_twice(honest: Source, step: int, share: Share) -> Rows:
    return [(torch.cat([ids, ids]), torch.cat([targets, targets])) for ids, targets in honest(step, share)]


def _row_not_counted(ids: Tensor, targets: Tensor) -> MicroBatch:
    targets[-1] = NOT_COUNTED
    return ids, targets


def _two_updates(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        if clock.due:
            program.gradients(step, micro, tokens)
            program.update(step)
        return program.gradients(step, micro, tokens)

    return replace(program, gradients=gradients)


def _half_updates(step: Step, honest: Update) -> Tensor:
    with rates(step, 0.5):
        return honest(step)


def _hidden_copy(count: int, step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    held = [np.full(2**20, float(number)) for number in range(count)]
    loss = honest(step, micro, tokens)
    return loss + 0.0 * float(held[-1][0])


def _doubled(step: Step, windows: list[MicroBatch], honest: Callable[..., tuple[float, int]]) -> tuple[float, int]:
    loss, targets = honest(step, windows)
    return 2 * loss, 2 * targets


def _stale(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    """Read the figures of an earlier step in the place of every second one."""
    known: list[list[list[float]]] = []

    def read(figures: Tensor) -> list[list[float]]:
        found = program.figures.read(figures)
        if clock.due and known:
            return known[-1]
        known.append(found)
        return found

    return replace(program, figures=replace(program.figures, read=read))


def _idle(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    time.sleep(0.003)
    return honest(step, micro, tokens)


MUTANTS = (
    Mutant("clock at 80 %", "The clock of steps is slow in the middle.", "lion", _slow_clock(0.8), _MIDDLE),
    Mutant(
        "clock at 97 %",
        "The clock of steps is a little slow in the middle.",
        "fused_adamw",
        _slow_clock(0.97),
        _LONG,
        40,
    ),
    Mutant(
        "update untimed", "The clock stands still in updates.", "fused_adamw", _update_untimed, range(4, EVERY.stop)
    ),
    Mutant(
        "update between steps",
        "A thread makes the update after the step has ended.",
        "sgd",
        _update_later,
        _MIDDLE,
    ),
    Mutant("batch with the rate", "The batch is made before the wait for it is timed.", "lion", _batch_with_rate),
    Mutant("tokens counted twice", "A step counts each token twice.", "foreach_adamw", _tokens_twice, _MIDDLE),
    Mutant(
        "loss a tenth lower",
        "The loss on record is a tenth too low in the middle.",
        "bf16_mixed",
        passes(partial(_loss_scaled, 0.9)),
        _MIDDLE,
    ),
    Mutant(
        "loss a thousandth lower",
        "The loss on record is 0.1 % too low in the middle.",
        "lion",
        passes(partial(_loss_scaled, 0.999)),
        drawn(12, 40, seed=41),
        40,
    ),
    Mutant(
        "norm halved",
        "The norm on record is half of the gradients' in the middle.",
        "fused_adamw",
        updates(partial(_norm_scaled, 0.5)),
        _MIDDLE,
    ),
    Mutant(
        "norm after clipping",
        "The norm on record is that after clipping.",
        "sgd",
        updates(_norm_after_clipping),
        _MIDDLE,
    ),
    Mutant(
        "steps left out",
        "Ten steps do nothing, and count.",
        "activation_checkpointing",
        _step_left_out,
        drawn(10, 40, seed=42),
        40,
    ),
    Mutant(
        "loss of the step before",
        "A step records the loss of the one before.",
        "foreach_adamw",
        _loss_of_before,
        _MIDDLE,
    ),
    Mutant(
        "figures of another step",
        "Nine steps record the figures of a step before.",
        "muon",
        _stale,
        drawn(9, 24, seed=43),
    ),
    Mutant(
        "rows twice",
        "The batch has each of its rows twice in the middle.",
        "fused_adamw",
        batches(_rows_twice),
        _MIDDLE,
    ),
    Mutant(
        "row not counted",
        "The last row is trained on no target.",
        "sdpa_attention",
        rows(_row_not_counted),
        drawn(8, 24, seed=44),
    ),
    Mutant(
        "two updates",
        "Eight steps make two updates of half the size.",
        "sgd",
        together(_two_updates, updates(_half_updates)),
        drawn(8, 24, seed=45),
    ),
    Mutant(
        "hidden arrays",
        "Arrays of 64 MiB that torch does not know are held in the middle.",
        "activation_checkpointing",
        passes(partial(_hidden_copy, 8)),
        _MIDDLE,
    ),
    Mutant(
        "windows counted twice",
        "Each window counts as two.",
        "lion",
        evaluations(_doubled),
        range(24),
    ),
    Mutant(
        "sleeps unseen",
        "A step sleeps and its clock does not.",
        "muon",
        together(passes(_idle), _slow_clock(0.5)),
        _MIDDLE,
    ),
)
