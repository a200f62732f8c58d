"""The training steps of one process, from the first to the last, with the proofs that are made among them.

The first step pays for one-time costs. The second is traced, and every optimization must show its effect in it. These
and the next steps are recorded, until enough updates were made to be compared with their references. The rest is the
middle: steps of warm-up and the timed blocks, in which drawn steps are replayed (`worker.proof.middle`). The updates of
all steps are watched.
"""

from collections.abc import Callable, Sequence

from assay.instruments.memory.resident_memory import keep_freed_memory
from assay.optimizations import Optimization
from assay.step.program import Step
from assay.training.loop import Loop, take_step
from assay.training.probes import ActivationNorms
from assay.training.step_record import StepRecord
from assay.training.stops import BudgetReached, EarlyEnd, NoEffect, TargetReached, Unproven
from assay.units import format_steps
from assay.values.recorder import STEPS
from assay.worker.blocks import PieceKind, plan, steps_left
from assay.worker.observer import RunObserver
from assay.worker.phases import Phases
from assay.worker.proof.ending import faults_of, traced_step
from assay.worker.proof.middle import Middle
from assay.worker.result import RunFindings


class ProvenSteps:
    """Trains the steps of this process; `wait` is called before each of at most `blocks` timed blocks."""

    def __init__(
        self,
        loop: Loop,
        findings: RunFindings,
        phases: Phases,
        observer: RunObserver,
        optimizations: Sequence[Optimization],
        blocks: int,
        wait: Callable[[], object],
    ) -> None:
        self._loop, self._findings, self._phases, self._observer = loop, findings, phases, observer
        self._optimizations, self._blocks, self._wait = optimizations, blocks, wait
        self._values = observer.values
        self._take = observer.watch.taking(take_step)

    def train(self) -> None:
        """Train to the last step. Raises an `EarlyEnd` if the steps stop before it."""
        position = self._loop.position
        if position.step > 0:
            self._loop.between_steps()
        last = position.step + steps_left(self._loop.run, position.step, position.tokens)
        try:
            blocks = self._beginning(last - position.step)
            keep_freed_memory()  # timed steps then need not map freed memory anew
            self._middle(last - position.step - sum(blocks), blocks)
            # A loss may count fewer targets than its batches have. A budget of targets then lasts for more steps.
            while left := steps_left(self._loop.run, position.step, position.tokens):
                self._phases.enter("untimed")
                self._advance(left)
            self._loop.stop_if_spent()
        finally:
            self._observer.watch.close()
            self._values.note(watched_updates=self._observer.watch.updates)

    def _middle(self, untimed: int, blocks: tuple[int, ...]) -> None:
        """Do the steps after the recorded ones: `untimed` of warm-up, and the timed blocks."""
        middle = Middle(self._values, self._loop, self._findings.trace, untimed, blocks)
        try:
            self._untimed(middle)
            work: dict[PieceKind, Callable[[int], None]] = {
                "settling": self._advance,
                "steady": self._advance,
                "replay": lambda _: middle.replay(self._take),
                "heap": lambda _: middle.count_heap(self._take),
            }
            for steps in blocks:
                self._wait()
                self._observer.timed.block(middle.pieces(steps, heap=self._counts_heap), work)
        finally:
            self._findings.heap = middle.heap
            self._values.note(middle_steps=sum(step < self._loop.position.step for step in middle.steps))

    @property
    def _counts_heap(self) -> bool:
        """True if the heap is counted in a timed step: on a CPU, on one rank, if memory is measured."""
        run, device = self._loop.run, self._loop.step.program.device
        return self._findings.counts_heap and run.training.measure_memory and run.ranks == 1 and device.type == "cpu"

    def _advance(self, steps: int) -> None:
        self._loop.advance(steps, self._take)

    def _untimed(self, middle: Middle) -> None:
        """Do the steps of the middle that come before the first timed block."""
        for kind, steps in middle.pieces(middle.untimed):
            self._phases.enter("replay" if kind == "replay" else "warmup")
            if kind == "replay":
                middle.replay(self._take)
            else:
                self._advance(steps)

    def _beginning(self, left: int) -> tuple[int, ...]:
        """Do the first of `left` steps, have their values checked, and return the lengths of the timed blocks.

        A run that reaches its budget or target in these steps is checked as far as it came.
        """
        position, first = self._loop.position, self._loop.position.step
        stop: EarlyEnd | None = None
        blocks: tuple[int, ...] = ()
        with self._values.recorded("beginning", first, STEPS):
            try:
                blocks = self._recorded(left)
            except (BudgetReached, TargetReached) as ending:
                stop = ending
            if self._values.due and position.step > first:
                self._phases.enter("reference")
                self._values.conclude()
        if stop is not None:
            raise stop
        return blocks

    def _recorded(self, left: int) -> tuple[int, ...]:
        """Do the first step, the traced ones, and as many of the warm-up as are recorded."""
        pieces, take = plan(left, self._blocks), self._values.taking(self._take)
        if pieces.first:
            self._phases.enter("first_step")
            self._loop.advance(pieces.first, take)
        if pieces.trace:
            self._phases.enter("trace")
            pieces = plan(left, self._blocks, self._trace(left - pieces.first))
            self._prove()
        warmup = pieces.warmup
        while warmup and self._values.recording:
            if warmup == pieces.warmup:
                self._phases.enter("warmup")
            self._loop.advance(1, take)
            warmup -= 1
        return pieces.blocks

    def _trace(self, left: int) -> int:
        """Trace steps until one makes its update, because a skipped one shows nothing; returns the number of steps.

        A loss scale halves with each skipped update. Raises `Unproven` if all of the `left` steps are skipped.
        """
        for traced in range(1, left + 1):
            skipped = self._loop.position.skipped_steps
            self._loop.advance(1, self._values.taking(self._traced_step))
            if self._loop.position.skipped_steps == skipped:
                return traced
        raise Unproven(
            f"nothing could be proven: the update was skipped in each of {format_steps(left)} that were traced, and "
            f"the loss scale is now {self._loop.step.program.precision.loss_scale.value:g}; give more training.steps"
        )

    def _traced_step(self, step: Step, index: int, probes: ActivationNorms | None) -> StepRecord:
        record, self._findings.trace = traced_step(step, index, probes, self._loop.position.skipped_steps)
        return record

    def _prove(self) -> None:
        """Verify every optimization in the trace. Raises `NoEffect` if one shows no effect, or if dropout is wrong."""
        trace, run, ranks = self._findings.trace, self._loop.run, self._loop.ranks
        if trace is None:
            raise RuntimeError("there is no trace for a proof")
        with self._phases.aside():
            for one in self._optimizations:
                self._observer.say_evidence(one.verify(trace, run))
        own = [
            f"{one.optimization} took no effect: {one.observed}" for one in self._findings.evidence if not one.verdict
        ]
        own += faults_of(trace, self._loop.step, run, ranks)
        missing = [said for said in ranks.gather(own[0] if own else "") if said]
        if missing:
            raise NoEffect(missing[0])
