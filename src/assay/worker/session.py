"""The work of the measured child, in order, from the data to the last trace.

The pieces are build, first step, traced step, warm-up, timed blocks, last evaluation, last checkpoint, memory pass and
last traced step. Both traced steps prove every optimization. Steps of the last two pieces do not train. Importing this
module imports torch, which is a phase of its own, so the caller imports it late.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from assay.instruments.memory.process import keep_freed_memory, return_freed_memory
from assay.optimizations import mesh_of, optimizations_of
from assay.parallel.ranks import ALONE, joined, local_rank
from assay.proofs import dropout
from assay.records.events import AGAIN
from assay.records.evidence import ValueProof
from assay.step.program import Step
from assay.store import history
from assay.store.event_log import Event
from assay.store.run_folder import RunFolder
from assay.training.loop import Loop, take_step
from assay.training.probes import ActivationNorms, RouterStatistics
from assay.training.step_record import StepRecord
from assay.training.stops import (
    BudgetReached,
    EarlyEnd,
    Interrupted,
    NoEffect,
    TargetReached,
    Unproven,
    Unread,
    WrongValues,
    stopped,
)
from assay.units import format_steps
from assay.worker.build import build_loop, device_of
from assay.worker.counters import Counters
from assay.worker.ending.documents import documents_seen
from assay.worker.ending.gradients import add_gradient_probe
from assay.worker.ending.sample import add_sample
from assay.worker.environment import same_versions, versions
from assay.worker.memory import count_tensors, measure_memory
from assay.worker.observer import RunObserver
from assay.worker.phases import Phases
from assay.worker.plan import BLOCKS, plan, steps_left
from assay.worker.processes.channel import Channel
from assay.worker.proof.ending import has_trained, prove_at_end, traced_step, unchanged
from assay.worker.proof.process import ReferenceProcess
from assay.worker.proof.values import ValueCheck
from assay.worker.result import Findings


class Session:
    """One run in this process."""

    def __init__(
        self,
        folder: RunFolder,
        channel: Channel,
        phases: Phases,
        findings: Findings,
        turns: int | None,
        reference: ReferenceProcess | None,
        *,
        sample: bool = False,
        forked: bool = False,
    ) -> None:
        self.folder, self.channel, self.phases, self.findings = folder, channel, phases, findings
        self.run = findings.spec.config
        self.optimizations = optimizations_of(self.run)
        self.blocks = turns or BLOCKS
        self._reference, self._forked = reference, forked
        self.ranks = ALONE
        self._samples = sample and self.run.ranks == 1

    def work(self) -> None:
        """Run all pieces. Raises the `EarlyEnd` of a run that stops early, once the remaining pieces are done."""
        with joined(mesh_of(self.run), device_of(self.run, local_rank())) as self.ranks:
            self.observer = RunObserver(self.channel, self.phases, self.findings, self.ranks)
            same_versions([json.loads(said) for said in self.ranks.gather(json.dumps(versions()))])
            self._work()

    def _work(self) -> None:
        loop = self._build()
        try:
            ended = stopped(lambda: self._train(loop))
            self._wait("finish")
            self.phases.enter("recording")
            with unchanged("the last evaluation", loop.step, self.ranks):
                ended = stopped(loop.evaluate) or ended
        except (Interrupted, Unread):
            loop.checkpoint()
            raise
        with unchanged("the last checkpoint", loop.step, self.ranks):
            loop.checkpoint()
        self.counters.conclude(loop.position, self.findings)
        has_trained(loop, self.initial, self.ranks)
        self.findings.documents = documents_seen(loop)
        if ended is None:
            self.observer.timed.repeat(loop, lambda: self._wait("repeat") == AGAIN)
        if self.run.training.measure_memory:
            self.phases.enter("memory_pass")
            self.findings.memory = measure_memory(loop, self.findings, self.phases.progressed)
            self.counters.peak(loop.step, self.findings.memory, self.findings.trace)
            if self.ranks.world > 1:
                from assay.worker.ranks import every_rank

                self.findings.ranks = every_rank(loop, self.findings, self.ranks)
        if not isinstance(ended, Unproven):
            self.phases.enter("last_trace")
            prove_at_end(loop, self.findings, self.optimizations, self.ranks, self.folder, self.observer.say_evidence)
        if self._samples and not isinstance(ended, Unproven):
            self.phases.enter("sample")
            add_sample(self.findings, self.folder)
        if self.run.training.gradient_probe:
            self.phases.enter("gradients")
            probe = partial(add_gradient_probe, self.findings, self.folder, self.ranks, self.channel)
            ended = stopped(probe) or ended
        self.phases.enter("recording")
        if ended is not None:
            raise ended

    def _build(self) -> Loop:
        self.phases.enter("build")
        # Deterministic mode and torch's optimizers import its compiler in any case; the next line would slow that down.
        import torch._dynamo  # noqa: F401

        return_freed_memory()  # until the timed steps, so that these begin with an unfragmented heap
        findings, earlier = self.findings, self.folder.events()
        built = build_loop(self.folder, findings.spec, self.optimizations, self.observer, self.ranks)
        loop, step, self.initial = built.loop, built.loop.position.step, built.initial
        self.observer.counters = self.counters = Counters(self.run, built.data, self.ranks, loop.position)
        self.counters.watch(loop)
        self.observer.routers = RouterStatistics(loop.step)
        count_tensors(self.phases, loop.step.program.device)
        findings.position, findings.environment, findings.notes = loop.position, built.environment, list(built.notes)
        findings.parameters, findings.split_tokens = built.parameters, built.split_tokens
        me = psutil.Process()
        start: Event = {
            "pid": me.pid,
            "process_started": me.create_time(),
            "time": time.time(),
            "resumed_at": step,
            "mesh": str(self.ranks.layout),
            "split_tokens": built.split_tokens,
            "forked": self._forked,
        }
        self.channel.event("start", **start)
        for note in built.notes:
            self.channel.event("note", text=note)
        if step > 0:
            self.observer.recall(history.of_last_mesh([*earlier, {"event": "start", **start}])[:-1], step)
        return loop

    def _train(self, loop: Loop) -> None:
        """Train the steps of this process. Raises an `EarlyEnd` if they stop before the last."""
        position = loop.position
        if position.step > 0:
            loop.between_steps()
        left = steps_left(self.run, position.step, position.tokens)
        pieces = plan(left, self.blocks)
        with self._values_checked(loop):
            if pieces.first:
                self.phases.enter("first_step")
                loop.advance(pieces.first, self.values.recording(take_step))
            if pieces.trace:
                self.phases.enter("trace")
                pieces = plan(left, self.blocks, self._trace(loop, left - pieces.first))
                self._prove()
            keep_freed_memory()  # timed steps then need not map freed memory anew
            if pieces.warmup:
                self.phases.enter("warmup")
                loop.advance(pieces.warmup, self.values.recording(take_step))
        for steps in pieces.blocks:
            self._wait("block")
            self.observer.timed.block(steps, loop.advance)
        loop.stop_if_spent()

    @contextmanager
    def _values_checked(self, loop: Loop) -> Iterator[None]:
        """Record the block's steps, and compare them with a reference. Raises `WrongValues`.

        A run that reaches its budget or target in these steps is checked as far as it came.
        """
        self.values = ValueCheck(self.folder, self.run, loop.step, loop.position.step, self.ranks)
        self.observer.values = self.values
        stop: EarlyEnd | None = None
        first = loop.position.step
        try:
            try:
                yield
            except (BudgetReached, TargetReached) as ending:
                stop = ending
            if self.values.due and loop.position.step > first:
                self.phases.enter("reference")
                self._hold_values(self.values.conclude(self.channel, self._reference))
        finally:
            if self._reference is not None:
                self._reference.end()
            self.values.abandon()
        if stop is not None:
            raise stop

    def _hold_values(self, proof: ValueProof) -> None:
        self.findings.values = proof
        self.channel.event("values", proof=proof.model_dump(mode="json"))
        if not proof.verdict:
            raise WrongValues(proof.failures[0])

    def _trace(self, loop: Loop, left: int) -> int:
        """Trace steps until one makes its update, because a skipped one shows nothing; returns the number of steps.

        A loss scale halves with each skipped update. Raises `Unproven` if all of the `left` steps are skipped.
        """
        for traced in range(1, left + 1):
            skipped = loop.position.skipped_steps
            loop.advance(1, self.values.recording(self._traced_step))
            if loop.position.skipped_steps == skipped:
                return traced
        raise Unproven(
            f"nothing could be proven: the update was skipped in each of {format_steps(left)} that were traced, and "
            f"the loss scale is now {loop.step.program.precision.loss_scale.value:g}; give more training.steps"
        )

    def _traced_step(self, step: Step, index: int, probes: ActivationNorms | None) -> StepRecord:
        skipped = None if self.findings.position is None else self.findings.position.skipped_steps
        record, self.findings.trace = traced_step(step, index, probes, skipped)
        return record

    def _prove(self) -> None:
        """Verify every optimization in the trace. Raises `NoEffect` if one shows no effect, or if dropout is wrong."""
        if self.findings.trace is None:
            raise RuntimeError("there is no trace for a proof")
        with self.phases.aside():
            for one in self.optimizations:
                self.observer.say_evidence(one.verify(self.findings.trace, self.run))
        own = [
            f"{one.optimization} took no effect: {one.observed}" for one in self.findings.evidence if not one.verdict
        ]
        own += [text for text in (dropout.fault(self.findings.trace, self.run),) if text]
        missing = [said for said in self.ranks.gather(own[0] if own else "") if said]
        if missing:
            raise NoEffect(missing[0])

    def _wait(self, upcoming: str) -> str:
        """Wait for a turn, and return the word that granted it, which is the same on every rank."""
        with self.phases.aside("waiting"):
            word = self.channel.wait(upcoming)
            (again,) = self.ranks.highest(float(word == AGAIN))
        return AGAIN if again else word
