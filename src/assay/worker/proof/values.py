"""The value check of a run: record some of its steps, and have a reference process compare them with references.

The references are computed in a process of their own, so that no memory figure of the run contains them. That process
(`worker.proof.process`) is asked for each part: the first steps, drawn steps of the middle, evaluations, and two
discarded steps at the end. All ranks wait for its answer, and nothing is timed meanwhile. A run with wrong values
ends at once, and so does one whose check has no answer.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch

from assay.optimizations import expected_of
from assay.records.evidence import ValueProof
from assay.store.run_folder import RunFolder
from assay.training.evaluation import Evaluation, group_of
from assay.training.loop import Loop, TakeStep
from assay.training.step_record import StepRecord
from assay.training.stops import Interrupted, Unproven, WrongValues
from assay.values.masks import source_of_masks
from assay.values.recorder import STEPS, Part, StepRecorder
from assay.values.shared_memory import SharedMemory
from assay.values.tensor_file import moved_to_files, record_of
from assay.worker.processes.channel import Channel
from assay.worker.proof.process import NOT_SHARED, ReferenceProcess, values_folder

if TYPE_CHECKING:
    from assay.reference.expected import Kind
    from assay.step.program import Step
    from assay.training.probes import ActivationNorms
    from assay.training.queued_step import Taken

_POLL_SECONDS = 0.2
_FEW_BATCHES = 4
"""Validation batches that are all evaluated again."""
_INTERRUPTED = "interrupted while its values were checked"
_COPIES = 2 * STEPS + 4
"""Copies of all weights in a record: gradients of each step, weights before and after each, state, and a spare."""
_ROOM = 2
"""Peaks of the run that are free before a record is kept on the GPU: its own, and its reference's."""


class ValueCheck:
    """Records steps of this rank, part by part, and has each part checked.

    `proof` is that of all parts so far, and `tell` receives it each time. `unproven_steps` are those of earlier
    processes that no proof covers.
    """

    def __init__(
        self,
        folder: RunFolder,
        loop: Loop,
        channel: Channel,
        process: ReferenceProcess | None,
        tell: Callable[[ValueProof], None],
        unproven_steps: int = 0,
    ) -> None:
        self._place, self._process, self._channel, self._tell = values_folder(folder), process, channel, tell
        self._folder, self._loop, self._run, self._ranks = folder, loop, loop.run, loop.ranks
        self._expected = expected_of(loop.run)
        self._recorder: StepRecorder | None = None
        self._part = ""
        self._before = {"since": loop.position.step, "unproven_steps": unproven_steps}
        every = loop.run.training.eval_interval
        before_the_last = range(every, loop.run.training.steps, every) if every else range(0)
        rng = random.Random(f"evaluation that is checked, seed {loop.run.seed}")
        self.drawn_evaluation = rng.choice(before_the_last) if before_the_last else None
        """Number of steps before the evaluation that is checked beside the last one."""
        # A run without optimizations is the baseline itself.
        self.due = bool(loop.run.optimizations)
        self._shares = True
        """False once the reference process could not open a record in the GPU's memory."""
        self.unchecked = self._obstacle() if self.due else "nothing was computed"
        self.proof: ValueProof | None = ValueProof(unchecked=self.unchecked) if self.due and self.unchecked else None

    def _obstacle(self) -> str:
        """Reason for which this run's values are not checked; empty if they are. It is the same on all ranks."""
        if not self._run.training.check_values:
            return "training.check_values is off"
        (lacking,) = self._ranks.highest(float(shutil.disk_usage(self._folder.path).free < self._record_bytes))
        return "the disk has no room for a record of gradients and weights" if lacking else ""

    @cached_property
    def _memory(self) -> SharedMemory | None:
        """Memory of the GPU for records, if there is much more of it than the run and a record need; else None."""
        device = self._loop.step.program.device
        if device.type != "cuda" or self._ranks.world > 1:
            return None
        from assay.values.by_rows import peak_of_run

        peak = peak_of_run(self._run)
        if peak is None or torch.cuda.mem_get_info(device)[0] < _ROOM * peak + self._record_bytes:
            return None
        return SharedMemory(device)

    @property
    def _record_bytes(self) -> int:
        return _COPIES * sum(one.numel() * one.element_size() for _, one in self._loop.step.named_parameters())

    @contextmanager
    def recorded(self, part: Part, first: int, updates: int) -> Iterator[None]:
        """Context in which steps from `first` on are recorded, until `updates` updates were made.

        What was not concluded in it is deleted. All ranks must enter it.
        """
        self._part = f"{part}-{first}"
        if not self.unchecked:
            rounded = part == "middle" or self._expected.rule.rounds_state
            masks = source_of_masks(self._run, self._expected, self._loop.step.program.device)
            place = self._place / self._part
            self._recorder = StepRecorder(
                self._loop.step,
                place,
                self._ranks,
                first,
                updates,
                rounds_state=rounded,
                masks=masks,
                part=part,
                memory=self._memory if self._shares else None,
            )
        try:
            yield
        finally:
            self._recorder = None
            if self._memory is not None:
                self._memory.free()
            if self._ranks.rank == 0:
                shutil.rmtree(self._place / self._part, ignore_errors=True)

    @property
    def kind(self) -> "Kind":
        """Return how near the gradients of this run must be to the baseline's."""
        return self._expected.gradients.kind

    @property
    def recording(self) -> bool:
        """True while more steps are to be recorded."""
        return self._recorder is not None and not self._recorder.done

    def taking(self, take: TakeStep) -> TakeStep:
        """Wrap `take`, so that its steps are recorded until enough updates were made."""

        def recorded(step: "Step", index: int, probes: "ActivationNorms | None") -> "StepRecord | Taken":
            recorder = self._recorder
            if recorder is None or recorder.done:
                return take(step, index, probes)
            watched, recorder.seconds = recorder.watch(step, index), 0.0
            with recorder.hooked():
                taken = take(watched, index, probes)
                aside = recorder.seconds  # what is recorded after the step is not in its seconds
            return replace(taken, seconds=taken.seconds - aside)

        return recorded

    def evaluated(self, evaluation: Evaluation) -> None:
        """Check drawn groups of an evaluation of the present weights. Raises as `conclude`, which it calls.

        All groups are checked if they have few batches, and else a drawn one and the last, or one of large groups.
        """
        windows, sample = self._loop.windows, self._loop.sample
        if self.unchecked or not evaluation.groups or windows is None:
            return
        rng = random.Random(f"groups that are evaluated again, seed {self._run.seed}, step {evaluation.step}")
        count = len(evaluation.groups)
        size = max(1, -(-sample.batches // count))
        drawn = {rng.randrange(count)}
        if count * size <= _FEW_BATCHES:
            drawn = set(range(count))
        elif size <= _FEW_BATCHES:
            drawn |= {count - 1}  # the last batch may be a partial one
        groups = {number: evaluation.groups[number] for number in sorted(drawn)}
        with self.recorded("evaluation", evaluation.step, 0):
            assert self._recorder is not None
            self._recorder.evaluated(groups, partial(group_of, windows, sample))
            self.conclude()

    def stepped(self, record: StepRecord) -> None:
        """Record the loss, gradient norm and learning rate of a step."""
        if self._recorder is not None:
            self._recorder.stepped(record.step, record.loss, record.log_gradient_norm, record.learning_rate)

    def conclude(self) -> None:
        """Have rank 0's reference process check the record, and add its answer to `proof`.

        Raises `WrongValues` on every rank if a value is wrong, `Unproven` if there is no answer, `Interrupted` if a
        stop was requested meanwhile.
        """
        if self._recorder is None:
            if self.proof is not None:
                self._tell(self.proof)
            return
        self._recorder.close()
        self._recorder = None
        self._ranks.meet()
        found = ValueProof.model_validate_json(self._ranks.gather(self._answer())[0])
        if found.broken == NOT_SHARED and self._memory is not None:
            moved_to_files(record_of(self._place / self._part), self._memory)
            self._shares = False
            found = ValueProof.model_validate_json(self._answer())
        if found.broken == _INTERRUPTED:
            raise Interrupted(_INTERRUPTED)
        found = found.model_copy(update=self._before)
        self.proof = found if self.proof is None else self.proof.joined(found)
        self._tell(self.proof)
        if found.broken:
            self.unchecked = found.broken
            raise Unproven(
                f"the values could not be checked: {found.broken}; run again, or give training.check_values=false"
            )
        if found.checked and not found.verdict:
            raise WrongValues(found.failures[0])

    def note(self, **figures: int) -> None:
        """Add figures to the proof that only the run's own process knows."""
        if self.proof is not None and self.proof.checked:
            self.proof = self.proof.model_copy(update=figures)
            self._tell(self.proof)

    def _answer(self) -> str:
        """On rank 0, the reference process's answer. The others communicate while they wait, to avoid a timeout."""
        process = self._process
        if process is not None:
            process.ask(self._part)
        stopped = False
        while self._ranks.highest(float(process is not None and not stopped and not process.wait(_POLL_SECONDS)))[0]:
            if process is None:
                time.sleep(_POLL_SECONDS)
            stopped = self._channel.interrupted
        if process is None:
            return ""
        return ValueProof(broken=_INTERRUPTED).model_dump_json() if stopped else process.answer(self._part)
