"""The training loop: steps, and the work that is due between them.

A step's time covers the batch, forward, backward, update, and one read of its figures by the host, after all is queued.
Processing the figures is not timed. A step is followed by its record and a check that it was finite. An evaluation, a
checkpoint and a stop follow in this order, if due, so a resumed run never lacks an evaluation. Budgets are checked
before each step. Every stop is an exception (see `stops`) and leaves whole steps.

A program may read the figures of several steps together (`read_every`). Steps then run without interruption until the
read or anything else is due. All other work follows the read, so nothing is due while a step is unread.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import torch

from assay.config import ResolvedRun
from assay.errors import UsageError
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.device_queue import mark, seconds_between
from assay.step.program import MicroBatch, Program, Step
from assay.training.batches import micro_batches_of
from assay.training.divergence import diverged_evaluation, diverged_step
from assay.training.evaluation import UNKNOWN, Evaluation, EvaluationSample, Windows, evaluate
from assay.training.probes import ActivationNorms
from assay.training.queued_step import Taken, take
from assay.training.step_record import Position, StepRecord
from assay.training.stops import BudgetReached, Diverged, Interrupted, TargetReached, Unread
from assay.units import format_steps

TakeStep = Callable[[Step, int, ActivationNorms | None], StepRecord | Taken]


class Observer(Protocol):
    """Receives the loop's events and decides whether to go on. Evaluations and checkpoints run inside `during`."""

    def stepped(self, record: StepRecord) -> None: ...
    def evaluated(self, evaluation: Evaluation) -> None: ...
    def saved(self, folder: Path, step: int) -> None: ...
    def progressed(self, done: int, total: int) -> None: ...
    def interrupted(self) -> bool: ...
    def during(self, phase: str) -> AbstractContextManager[None]: ...


def train_step(step: Step, index: int, probes: ActivationNorms | None = None) -> StepRecord:
    """Do the optimizer step `index` and read its figures. Raises `Unread`, and any error of the program's seams."""
    (record,) = read(step, [take(step, index, probes)])
    return record


def train_until_updated(step: Step, index: int, probes: ActivationNorms | None = None) -> StepRecord:
    """Repeat the step `index` until its update is not skipped: the loss scale has settled, optimizer state exists."""
    while (record := train_step(step, index, probes)).skipped:
        pass
    return record


def take_step(step: Step, index: int, probes: ActivationNorms | None = None) -> StepRecord | Taken:
    """Like `train_step`, but leaves the figures on the device if `read_every > 1`."""
    return take(step, index, probes) if step.program.figures.read_every > 1 else train_step(step, index, probes)


def read(step: Step, taken: Sequence[StepRecord | Taken]) -> list[StepRecord]:
    """Return the records of steps. The host waits for the device once.

    This time is divided equally among the steps, and so is what the host did between them while the device computed.
    """
    unread = [one for one in taken if isinstance(one, Taken)]
    if not unread:
        return [one for one in taken if isinstance(one, StepRecord)]
    start, ended = time.perf_counter(), mark(step.program.device)
    rows = step.program.figures.read(torch.stack([one.figures for one in unread]))
    waited = (time.perf_counter() - start + _beside(step.program, unread)) / len(unread)
    each = _device_seconds(unread, ended)
    found = (_record(one, row, waited, each) for one, row in zip(unread, rows, strict=True))
    return [next(found) if isinstance(one, Taken) else one for one in taken]


def _beside(program: Program, unread: Sequence[Taken]) -> float:
    """Seconds between queued steps, in which an accelerator goes on with them: instruments look at the host's side."""
    if program.device.type == "cpu":
        return 0.0
    return sum(after.began - before.queued for before, after in pairwise(unread))


def _device_seconds(unread: Sequence[Taken], ended: torch.cuda.Event | None) -> float | None:
    """Mean seconds of a step by the device's events; None on a CPU."""
    seconds = seconds_between(unread[0].begun, ended)
    return None if seconds is None else seconds / len(unread)


def _record(taken: Taken, figures: Sequence[float], waited: float, on_device: float | None) -> StepRecord:
    loss, norm, *watched = figures
    tokens = watched.pop() if taken.tokens is None else taken.tokens
    if not 0 <= tokens < math.inf:
        raise UsageError(f"the loss counted {tokens:g} targets in step {taken.step}; a count is zero or more")
    finite = math.isfinite(loss) and math.isfinite(norm)
    skipped = not finite and taken.left_out
    return StepRecord(
        step=taken.step,
        loss=loss,
        learning_rate=taken.learning_rate,
        log_gradient_norm=math.log(norm) if norm > 0 else -math.inf if norm == 0 else math.nan,
        activation_norms=tuple(map(math.sqrt, watched)),
        seconds=taken.seconds + waited,
        tokens=round(tokens),
        targets=taken.targets,
        data_seconds=taken.data_seconds,
        host_seconds=None if on_device is None else taken.seconds,
        device_seconds=on_device,
        skipped=skipped,
        finite=finite or skipped,
        loss_scale=taken.loss_scale,
    )


@dataclass
class Loop:
    """Trains one run from `position` on. `save` writes a checkpoint of a position and returns its folder."""

    run: ResolvedRun
    step: Step
    position: Position
    probes: ActivationNorms | None
    windows: Windows | None
    """Validation batches; None: nothing is evaluated."""
    bytes_per_token: float | None
    save: Callable[[Position], Path]
    observer: Observer
    sample: EvaluationSample = UNKNOWN
    saved_at: int = 0
    """Step of the newest checkpoint."""
    ranks: Ranks = ALONE
    updated_by: int | None = None
    """Step of this process's last update."""
    discarded: int = 0
    """Number of steps that `discard` has done."""

    def advance(self, steps: int, take: TakeStep = take_step) -> None:
        """Do `steps` steps by `take`, and the work that is due between them. Raises an `EarlyEnd`.

        All figures are read before any work that is due, and before this returns.
        """
        while steps > 0:
            self.stop_if_spent()
            taken = self._take_together(min(steps, self._until_due()), take)
            steps -= len(taken)
            for record in self._read(taken):
                if not record.tokens:
                    # The plain update left the weights as they were, and an unread one did not.
                    stop = Unread if len(taken) == 1 else UsageError
                    raise stop(f"no target counts in step {record.step}: the loss leaves out all labels of its batch")
                self.position.advance(record)
                if record.finite and not record.skipped:
                    self.updated_by = record.step
                self.observer.stepped(record)
                if not record.finite:
                    rows = micro_batches_of(self.step.program, record.step)
                    raise Diverged(diverged_step(self.step, rows, self.ranks, record.step, taken[-1].step))
            self.between_steps()

    def _until_due(self) -> int:
        """Return the number of steps until something is due, at most `read_every`."""
        training, position = self.run.training, self.position
        intervals = (training.eval_interval, training.checkpoint_interval)
        due = [interval - position.step % interval for interval in intervals if interval > 0]
        due += [step - position.step for step in training.keep_steps if step > position.step]
        if training.tokens is not None:
            due.append(math.ceil((training.tokens - position.tokens) / self.run.tokens_per_step))
        return min([self.step.program.figures.read_every, *due])

    def _take_together(self, steps: int, take: TakeStep) -> list[StepRecord | Taken]:
        """Take `steps` steps without interruption; fewer if a stop is requested or the next batch cannot be read."""
        taken: list[StepRecord | Taken] = []
        while len(taken) < steps and not (taken and self.observer.interrupted()):
            upcoming = self.position.step + len(taken)
            try:
                taken.append(take(self.step, upcoming, self.probes))
            except Unread as stop:
                if not self.ranks.all_come(f"unread step {upcoming}"):
                    raise UsageError(f"one rank alone cannot read step {upcoming}: {stop}") from stop
                if not taken:
                    raise
                break  # first read and count the finished steps; the next attempt raises the same `Unread`
        return taken

    def _read(self, taken: Sequence[StepRecord | Taken]) -> list[StepRecord]:
        records = read(self.step, taken)
        if self.ranks.world == 1:
            return records
        # All ranks count the same seconds, or one would reach its budget before the others.
        slowest = self.ranks.highest(*(record.seconds for record in records))
        return [replace(record, seconds=seconds) for record, seconds in zip(records, slowest, strict=True)]

    def discard_step(self) -> None:
        """Do one more step for an instrument, after the run has finished. It is not counted."""
        train_step(self.step, self.position.step, self.probes)

    def discard(self, steps: int) -> list[StepRecord]:
        """Do `steps` more steps after the run has finished, read as often as in the run. They are not counted.

        Raises `Unread` if the source cannot give the next batch.
        """
        records: list[StepRecord] = []
        while steps > 0:
            some = min(steps, self.step.program.figures.read_every)
            first = self.position.step + self.discarded
            records += self._read([take_step(self.step, first + at, self.probes) for at in range(some)])
            self.discarded += some
            steps -= some
        return records

    def discard_until_updated(self) -> None:
        """Like `discard_step`, repeated until the update is not skipped."""
        train_until_updated(self.step, self.position.step, self.probes)

    def between_steps(self) -> None:
        """Do the work that is due after the last step and not yet done. A resumed run thus makes up for a stop."""
        done, training = self.position.step, self.run.training
        last = done >= training.steps
        if _due(training.eval_interval, done) and not last:
            self.evaluate()
        if (_due(training.checkpoint_interval, done) or done in training.keep_steps) and not last:
            self.checkpoint()
        self._stop_if_asked()

    def stop_if_spent(self) -> None:
        """Raise `BudgetReached` if the run's tokens or seconds are spent, `Interrupted` if a stop is requested."""
        self._stop_if_asked()
        if reason := self.position.spent(self.run.training, self.run.counted):
            raise BudgetReached(reason)

    def _stop_if_asked(self) -> None:
        if self.observer.interrupted():
            raise Interrupted(f"interrupted after {format_steps(self.position.step)}")

    def evaluate(self) -> None:
        """Evaluate, unless this step is evaluated already. Raises `TargetReached`, `Diverged` or `Interrupted`."""
        if self.windows is None:
            return
        known, target = self.position.evaluation, self.run.training.target_loss
        if known is None or known.step != self.position.step:
            with self.observer.during("evaluation"):
                known = self._evaluation()
            if not known.targets:
                raise Unread("no held-out target counts: the loss leaves out all labels of the validation batches")
            self.position.evaluation = known
            self.observer.evaluated(known)
        if not math.isfinite(known.loss):
            raise Diverged(diverged_evaluation(self.step, self._evaluation, self.ranks, known, self.updated_by))
        if target is not None and known.loss <= target:
            raise TargetReached(f"target loss reached: {known.loss:.4f} ≤ {target:g} after {format_steps(known.step)}")

    def _evaluation(self) -> Evaluation:
        return evaluate(self.step, self._patient_windows, self.bytes_per_token, self.position.step, self.sample)

    def _patient_windows(self) -> Iterable[MicroBatch]:
        try:
            for number, batch in enumerate(self.windows() if self.windows is not None else ()):
                self._stop_if_asked()
                self.observer.progressed(number, self.sample.batches)
                yield batch
        except UsageError as fault:  # of a user's own batches; the steps so far are saved
            raise Unread(str(fault)) from fault

    def checkpoint(self) -> None:
        """Save, unless the newest checkpoint is of this step. Raises `StorageError`."""
        if self.saved_at != self.position.step:
            with self.observer.during("checkpoint"):
                place = self.save(self.position)
            self.saved_at = self.position.step
            self.observer.saved(place, self.saved_at)


def _due(interval: int, done: int) -> bool:
    return interval > 0 and done % interval == 0
