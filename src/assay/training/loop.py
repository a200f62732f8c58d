"""The training loop: one step, and what may follow it.

The clock of a step covers the batch, forward, backward, update and the reading of its figures by the host, once, when
all is queued; what is done with the figures is off it. After a step come, in this order: its record, a check that it
was finite, an evaluation if one is due, a checkpoint if one is due (so a resumed run never lacks an evaluation), a stop
if one was asked for. Before a step: the budgets. Every stop is an exception (see `endings`) that leaves whole steps.
"""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from assay.config import Run
from assay.parallel.ranks import ALONE, Ranks
from assay.step.program import MicroBatch, Step
from assay.training.batches import micro_batches_of
from assay.training.divergence import first_not_finite, gradients_remain
from assay.training.endings import BudgetReached, Diverged, Interrupted, TargetReached
from assay.training.evaluation import Evaluation, Windows, evaluate
from assay.training.probes import ActivationNorms


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step."""

    step: int
    """Counted from 0."""
    loss: float
    """Nats per token, over every micro-batch."""
    learning_rate: float
    log_gradient_norm: float
    """Natural logarithm of the global norm before clipping; not finite where the norm is 0 or not finite."""
    activation_norms: tuple[float, ...]
    """Of the first and the last block's output; empty without probes."""
    seconds: float
    tokens: int
    data_seconds: float = 0.0
    """Of these seconds, those in which the host waited for its batch."""
    skipped: bool = False
    """The update was left out because a scaled gradient was not finite."""
    finite: bool = True
    loss_scale: float = 1.0
    """By which the loss was multiplied before it was differentiated."""


@dataclass
class Position:
    """How far a run has come, over all its processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """In training steps."""
    skipped_steps: int = 0
    train_loss: float | None = None
    """Of the last step."""
    evaluation: Evaluation | None = None

    def advance(self, record: StepRecord) -> None:
        """Count one more step."""
        self.step = record.step + 1
        self.tokens += record.tokens
        self.seconds += record.seconds
        self.skipped_steps += record.skipped
        self.train_loss = record.loss


class Observer(Protocol):
    """Who is told what happens, and asked whether to go on."""

    def stepped(self, record: StepRecord) -> None: ...
    def evaluated(self, evaluation: Evaluation) -> None: ...
    def saved(self, folder: Path, step: int) -> None: ...
    def interrupted(self) -> bool: ...
    def during(self, phase: str) -> AbstractContextManager[None]:
        """The context of an evaluation or a checkpoint."""
        ...


def train_step(step: Step, index: int, probes: ActivationNorms | None = None) -> StepRecord:
    """Do the optimizer step `index`. Raises whatever the program's seams raise."""
    start = time.perf_counter()
    program = step.program
    rate = program.schedule(index)
    for group in step.optimizer.param_groups:
        group["lr"] = rate
    scale = program.loss_scale.value
    asked = time.perf_counter()
    micro_batches = micro_batches_of(program, index)
    data_seconds = time.perf_counter() - asked
    tokens = sum(targets.numel() for _, targets in micro_batches) * program.share[1]
    summed = program.gradients(step, micro_batches, tokens)
    for finish in program.finish_gradients:
        finish(step)
    norm = program.update(step)
    watched = [norm.square() for norm in probes.take()] if probes else []
    sums = program.reduce_loss(torch.stack([summed, *watched]))
    figures = torch.stack([sums[0] / tokens, norm, *sums[1:]]).tolist()
    seconds = time.perf_counter() - start
    finite = math.isfinite(figures[0]) and math.isfinite(figures[1])
    skipped = not finite and program.loss_scale.skips and not gradients_remain(step)
    return StepRecord(
        step=index,
        loss=figures[0],
        learning_rate=rate,
        log_gradient_norm=math.log(figures[1]) if figures[1] > 0 else -math.inf if figures[1] == 0 else math.nan,
        activation_norms=tuple(map(math.sqrt, figures[2:])),
        seconds=seconds,
        tokens=tokens,
        data_seconds=data_seconds,
        skipped=skipped,
        finite=finite or skipped,
        loss_scale=scale,
    )


@dataclass
class Loop:
    """Trains one run from a position on. `save` writes a checkpoint of a position and says where."""

    run: Run
    step: Step
    position: Position
    probes: ActivationNorms | None
    windows: Windows
    bytes_per_token: float
    save: Callable[[Position], Path]
    observer: Observer
    saved_at: int = 0
    """The step of the newest checkpoint."""
    ranks: Ranks = ALONE

    def advance(self, steps: int, take: Callable[[Step, int, ActivationNorms | None], StepRecord] = train_step) -> None:
        """Do `steps` steps with what is due between them. Raises an `Ending`; `take` does one step."""
        for _ in range(steps):
            self.stop_if_spent()
            record = take(self.step, self.position.step, self.probes)
            if self.ranks.world > 1:
                # They count the same seconds, or one would stop for its budget before another.
                (slowest,) = self.ranks.highest(record.seconds)
                record = replace(record, seconds=slowest)
            self.position.advance(record)
            self.observer.stepped(record)
            if not record.finite:
                raise Diverged(self._diagnosis(record))
            self.between_steps()

    def discard_step(self) -> None:
        """Do the step that is next for an instrument's sake: it counts for nothing, and the run must be over."""
        train_step(self.step, self.position.step, self.probes)

    def between_steps(self) -> None:
        """What is due after the last step, where it was not done yet: a resumed run makes up what a stop cut off."""
        done, training = self.position.step, self.run.training
        last = done >= training.steps
        if _due(training.eval_interval, done) and not last:
            self.evaluate()
        if _due(training.checkpoint_interval, done) and not last:
            self.checkpoint()
        self._stop_if_asked()

    def stop_if_spent(self) -> None:
        """Raise `BudgetReached` when the tokens or seconds of the run are spent, `Interrupted` when asked to stop."""
        self._stop_if_asked()
        training, position = self.run.training, self.position
        if training.tokens is not None and position.tokens >= training.tokens:
            raise BudgetReached(f"the budget of {training.tokens} tokens is reached after {position.step} steps")
        if training.seconds is not None and position.seconds >= training.seconds:
            raise BudgetReached(f"the budget of {training.seconds:g} seconds is reached after {position.step} steps")

    def _stop_if_asked(self) -> None:
        if self.observer.interrupted():
            raise Interrupted(f"interrupted after {self.position.step} steps")

    def evaluate(self) -> None:
        """Evaluate, unless that was done at this very step. Raises `TargetReached`, `Diverged` or `Interrupted`."""
        known, target = self.position.evaluation, self.run.training.target_loss
        if known is None or known.step != self.position.step:
            with self.observer.during("evaluation"):
                known = evaluate(self.step, self._patient_windows, self.bytes_per_token, self.position.step)
            self.position.evaluation = known
            self.observer.evaluated(known)
        if not math.isfinite(known.loss):
            raise Diverged(f"the validation loss after {known.step} steps is {known.loss}")
        if target is not None and known.loss <= target:
            raise TargetReached(f"target loss reached: {known.loss:.4f} ≤ {target:g} after {known.step} steps")

    def _patient_windows(self) -> Iterable[MicroBatch]:
        for batch in self.windows():
            self._stop_if_asked()
            yield batch

    def checkpoint(self) -> None:
        """Save, unless the newest checkpoint is of this very step. Raises `StorageError`."""
        if self.saved_at != self.position.step:
            with self.observer.during("checkpoint"):
                place = self.save(self.position)
            self.saved_at = self.position.step
            self.observer.saved(place, self.saved_at)

    def _diagnosis(self, record: StepRecord) -> str:
        rows = micro_batches_of(self.step.program, record.step)
        found = first_not_finite(self.step, rows, self.ranks)
        what = f"{found} is the first tensor that is not finite" if found else "the loss or its gradient is not finite"
        return f"diverged at step {record.step}: {what}"


def _due(interval: int, done: int) -> bool:
    return interval > 0 and done % interval == 0
