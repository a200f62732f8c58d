"""The lab's own counters of a run, held against each other: tokens, rows, held-out windows, bytes, and the clock.

Wrong counters are wrong values: a step that counts tokens which it has not trained on is faster than it is. On several
ranks a fault is said once all of them come to the run's end, or the others would wait for ever. Only the time between
steps is no fault by itself, because a busy machine also makes it longer. It is a note, and a comparison judges it.
"""

from collections.abc import Sequence

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.instruments.memory.storages import distinct_bytes
from assay.instruments.operations import tensors_in
from assay.parallel.process_rank import Ranks
from assay.records.prediction import Memory
from assay.records.timing import Between, Block
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.evaluation import Evaluation
from assay.training.loop import Loop
from assay.training.step_record import Position, StepRecord
from assay.training.stops import WrongValues
from assay.units import format_bytes, format_seconds
from assay.values.read_rows import EvaluatedWindows, StepRows
from assay.worker.result import RunFindings


class Counters:
    """Counters of one rank's process, from its first step on."""

    def __init__(self, run: ResolvedRun, data: Prepared, ranks: Ranks, began: Position) -> None:
        self._run, self._ranks = run, ranks
        self._began = began.step, began.tokens
        self._rows, self._windows = StepRows(run, data), EvaluatedWindows(run, data)
        self._fault = ""

    def watch(self, loop: Loop) -> None:
        """Count what the loop's steps and evaluations take from now on."""
        loop.step = self._windows.watched(self._rows.watched(loop.step))
        if loop.windows is not None:
            loop.windows = self._windows.begun(loop.windows)

    def stepped(self, record: StepRecord) -> None:
        """Hold the tokens and the rows of a step."""
        due = self._run.tokens_per_step
        if self._wrong(record.tokens, due):
            self._say(f"step {record.step} counted {record.tokens} {self._run.counted}, and its batch has {due}")
        self._say(self._rows.fault(record.step))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hold the windows and the targets of an evaluation."""
        self._say(self._windows.fault(evaluation))

    def conclude(self, position: Position, findings: RunFindings) -> None:
        """Hold the totals of this process, and record what was held. Raises `WrongValues` on all ranks together."""
        steps, tokens = position.step - self._began[0], position.tokens - self._began[1]
        if self._wrong(tokens, steps * self._run.tokens_per_step):
            self._say(f"{steps} steps of {self._run.tokens_per_step} {self._run.counted} were counted as {tokens}")
        self._raise(self._fault)
        findings.counters = {"rows_of_steps": self._rows.held, "windows_of_evaluations": self._windows.held}
        if self._ranks.world == 1:  # several wait for each other between two steps
            findings.notes += _between_steps(findings.blocks)

    def _wrong(self, counted: int, due: int) -> bool:
        """True if a number of targets cannot be right. A loss of the user's own may count fewer than its batch has."""
        return counted > due or (counted < due and self._run.model.own is None)

    def peak(self, step: Step, memory: Memory, trace: Trace | None) -> None:
        """Hold the peak of tensors against those that live together in a step. All ranks must call it."""
        least, peak = _living_bytes(step, trace), memory.tensors_peak_bytes
        below = peak is not None and peak < least
        self._raise(
            f"the peak of tensors is {format_bytes(peak or 0)}, and weights, optimizer state, and either gradients or "
            f"what is saved for backward are {format_bytes(least)}"
            if below
            else ""
        )

    def _say(self, fault: str) -> None:
        self._fault = self._fault or fault
        if self._ranks.world == 1:
            self._raise(self._fault)

    def _raise(self, fault: str) -> None:
        if said := [one for one in self._ranks.gather(fault) if one]:
            raise WrongValues(said[0])


def _between_steps(blocks: Sequence[Block]) -> list[str]:
    """Return a note if more time passed between the timed steps than the loop takes."""
    found = Between.of(blocks)
    if found is None or not found.too_much():
        return []
    return [
        f"{format_seconds(found.seconds)} passed between the {found.steps} timed steps, which took "
        f"{format_seconds(found.of_seconds)}: the step time does not contain what was done there"
    ]


def _living_bytes(step: Step, trace: Trace | None) -> int:
    """Bytes of tensors that live together on the step's device: in every step, and at two instants of the traced one.

    At the end of forward they are joined by what is saved for backward, and before the update by gradients.
    """
    state = list(tensors_in(list(step.optimizer.state.values())))
    every = [*(one for _, one in (*step.named_parameters(), *step.optimized)), *state]
    lasting = distinct_bytes(one for one in every if one.device.type == step.program.device.type)
    if trace is None:
        return lasting
    memory = trace.memory
    gradients = 0 if memory.offloaded_bytes else memory.gradient_bytes
    saved = 0 if memory.offloaded_saved_bytes else memory.saved_total_bytes
    return lasting + max(gradients, saved)
