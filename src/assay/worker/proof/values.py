"""The value check of a run: record its first steps, then compare them with references in another process.

The references are computed in a process of their own, so that no memory figure of the run contains them. That process
(`worker.proof.process`) is asked after the untimed steps and before the first timed block, while all ranks wait. A run
with wrong values ends there.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from assay.data import Prepared, open_prepared
from assay.optimizations import expected_of
from assay.parallel.ranks import Ranks
from assay.records.evidence import ValueProof
from assay.step.program import MicroBatch, Step
from assay.store.run_folder import RunFolder
from assay.training.loop import TakeStep
from assay.training.step_record import StepRecord
from assay.training.stops import is_out_of_memory
from assay.values.recorder import STEPS, StepRecorder
from assay.worker.processes.channel import Channel
from assay.worker.proof.process import ReferenceProcess, values_folder

if TYPE_CHECKING:
    from assay.config.run import ResolvedRun
    from assay.training.probes import ActivationNorms
    from assay.training.queued_step import Taken
    from assay.values.recorded import Recorded

_POLL_SECONDS = 0.2
_COPIES = 2 * STEPS + 4
"""Copies of all weights in a record: gradients of each step, weights before and after each, state, and a spare."""


class ValueCheck:
    """Records steps of this rank until `updates` updates were made; `conclude` then has them checked."""

    def __init__(
        self, folder: RunFolder, run: "ResolvedRun", step: Step, first: int, ranks: Ranks, updates: int = STEPS
    ) -> None:
        self._place = values_folder(folder)
        self._folder, self._run, self._device, self._ranks = folder, run, step.program.device, ranks
        self._recorder: StepRecorder | None = None
        # A run without optimizations is the baseline itself.
        self.due = bool(run.optimizations)
        self.unchecked = self._obstacle(run, step) if self.due else "nothing was computed"
        if self.unchecked:
            return
        rounded = expected_of(run).rule.rounds_state
        self._recorder = StepRecorder(step, self._place, ranks, first, updates, rounds_state=rounded)
        if run.model.dropout > 0 and not expected_of(run).same_noise:
            self._recorder.probe()

    def _obstacle(self, run: "ResolvedRun", step: Step) -> str:
        """Reason for which this run's values are not checked; empty if they are. It is the same on all ranks."""
        if not run.training.check_values:
            return "training.check_values is off"
        needed = _COPIES * sum(one.numel() * one.element_size() for _, one in step.named_parameters())
        (lacking,) = self._ranks.highest(float(shutil.disk_usage(self._folder.path).free < needed))
        return "the disk has no room for a record of gradients and weights" if lacking else ""

    def recording(self, take: TakeStep) -> TakeStep:
        """Wrap `take`, so that its steps are recorded until enough updates were made."""

        def recorded(step: Step, index: int, probes: "ActivationNorms | None") -> "StepRecord | Taken":
            recorder = self._recorder
            if recorder is None or recorder.done:
                return take(step, index, probes)
            watched = recorder.watch(step, index)
            with recorder.hooked():
                taken = take(watched, index, probes)
            aside, recorder.seconds = recorder.seconds, 0.0
            return replace(taken, seconds=max(taken.seconds - aside, 0.0))

        return recorded

    def evaluate(self, windows: Sequence[MicroBatch]) -> None:
        """Record an evaluation of the present weights on some batches. All ranks must call it."""
        if self._recorder is not None:
            self._recorder.evaluate(windows)

    def stepped(self, record: StepRecord) -> None:
        """Record the loss, gradient norm and learning rate of a step."""
        if self._recorder is not None:
            self._recorder.stepped(record.step, record.loss, record.log_gradient_norm, record.learning_rate)

    def conclude(self, channel: Channel, process: ReferenceProcess | None) -> ValueProof:
        """Check the record in rank 0's reference process, and delete it. The result is the same on every rank."""
        if self._recorder is None:
            return ValueProof(unchecked=self.unchecked)
        self._recorder.close()
        self._recorder = None
        self._ranks.meet()
        try:
            said = self._checked(channel, process)
        finally:
            if self._ranks.rank == 0:
                shutil.rmtree(self._place, ignore_errors=True)
        return ValueProof.model_validate_json(self._ranks.gather(said)[0])

    def conclude_here(self) -> ValueProof:
        """Check the record in rank 0's process, once no more figures of the run are measured, and delete it."""
        if self._recorder is None:
            return ValueProof(unchecked=self.unchecked)
        self._recorder.close()
        self._recorder = None
        self._ranks.meet()
        said = ""
        if self._ranks.rank == 0:
            from assay.values.recorded import Recorded

            data = open_prepared(self._folder.data_folder(self._folder.spec()))
            recorded = Recorded(self._place, self._ranks.world)
            said = checked_in_memory(recorded, self._run, data, self._device).model_dump_json()
            shutil.rmtree(self._place, ignore_errors=True)
        return ValueProof.model_validate_json(self._ranks.gather(said)[0])

    def abandon(self) -> None:
        """Delete the record of a run that ended before it was checked."""
        self._recorder = None
        if self._ranks.rank == 0:
            shutil.rmtree(self._place, ignore_errors=True)

    def _checked(self, channel: Channel, process: ReferenceProcess | None) -> str:
        """On rank 0, the reference process's answer. The others communicate while they wait, to avoid a timeout."""
        if process is not None:
            process.ask()
        while self._ranks.highest(float(process is not None and not process.wait(_POLL_SECONDS)))[0]:
            if process is None:
                time.sleep(_POLL_SECONDS)
            elif channel.interrupted:
                process.end()
        return ValueProof().model_dump_json() if process is None else process.answer()


def checked_in_memory(recorded: "Recorded", run: "ResolvedRun", data: Prepared, device: torch.device) -> ValueProof:
    """Check a record; return an unchecked proof if the baseline runs out of memory."""
    from assay.values.check import check_values

    try:
        return check_values(recorded, run, data, device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return ValueProof(unchecked="the baseline ran out of memory, so there is nothing to compare with")
