"""The work of the measured child, in order, from the data to the last trace.

The pieces are build, first step, traced step, warm-up, timed blocks, last evaluation, last checkpoint, memory pass and
last traced step. Both traced steps prove every optimization. Steps of the last two pieces do not train. Importing this
module imports torch, which is a phase of its own, so the caller imports it late.
"""

import json
import shutil
import time
from contextlib import closing
from functools import partial

import psutil

from assay.instruments.memory.resident_memory import return_freed_memory
from assay.instruments.rates.gpu_state import GpuSampler
from assay.optimizations import mesh_of, optimizations_of
from assay.parallel.process_rank import ALONE, join_ranks, local_rank
from assay.proofs.later_steps import kept_aside
from assay.records.events import AGAIN, event_of
from assay.store import history
from assay.store.event_log import Event
from assay.store.run_folder import RunFolder
from assay.training.loop import Loop
from assay.training.probes import RouterStatistics
from assay.training.stops import Interrupted, NoEffect, Unproven, Unread, early_end_of
from assay.values.watch import UpdateWatch
from assay.worker.blocks import BLOCKS
from assay.worker.build import build_loop, device_of
from assay.worker.counter_checks import Counters
from assay.worker.ending import (
    add_gradient_probe,
    add_sample,
    count_tensors,
    documents_left_out,
    documents_seen,
    measure_memory,
)
from assay.worker.environment import same_versions, versions
from assay.worker.observer import RunObserver
from assay.worker.phases import Phases
from assay.worker.processes.channel import Channel
from assay.worker.proof.ending import check_unchanged, has_trained, prove_at_end
from assay.worker.proof.process import ReferenceProcess, values_folder
from assay.worker.proof.values import ValueCheck
from assay.worker.result import RunFindings
from assay.worker.steps import ProvenSteps

_LONG_SECONDS = 60.0
"""Time of a process from which a cell keeps its last checkpoint."""


class Session:
    """One run in this process."""

    def __init__(
        self,
        folder: RunFolder,
        channel: Channel,
        phases: Phases,
        findings: RunFindings,
        turns: int | None,
        reference: ReferenceProcess | None,
        *,
        sample: bool = False,
        forked: bool = False,
    ) -> None:
        self.folder, self.channel, self.phases, self.findings = folder, channel, phases, findings
        self.run = findings.spec.config
        self.optimizations = optimizations_of(self.run)
        self.blocks, self._is_cell = turns or BLOCKS, turns is not None
        self._reference, self._forked = reference, forked
        self.ranks = ALONE
        self._samples = sample and self.run.ranks == 1

    def work(self) -> None:
        """Run all pieces. Raises the `EarlyEnd` of a run that stops early, once the remaining pieces are done."""
        try:
            self._device = device = device_of(self.run, local_rank())
            with join_ranks(mesh_of(self.run), device) as self.ranks, closing(GpuSampler(device)) as gpu:
                self.observer = RunObserver(
                    self.channel, self.phases, self.findings, self.ranks, gpu, self.folder.trained
                )
                same_versions([json.loads(said) for said in self.ranks.gather(json.dumps(versions()))])
                self._work()
        finally:
            if self._reference is not None:
                self._reference.end()
                shutil.rmtree(values_folder(self.folder), ignore_errors=True)

    def _work(self) -> None:
        loop = self._build()
        try:
            ended = early_end_of(lambda: self._train(loop))
            self._wait("finish")
            self.phases.enter("recording")
            with check_unchanged("the last evaluation", loop.step, self.ranks):
                ended = early_end_of(loop.evaluate) or ended
                ended = early_end_of(lambda: self._held_evaluation(loop)) or ended
        except (Interrupted, Unread):
            loop.checkpoint()
            raise
        if self._keeps_checkpoint():
            with check_unchanged("the last checkpoint", loop.step, self.ranks):
                loop.checkpoint()
        self.counters.conclude(loop.position, self.findings)
        self.observer.watch.conclude()
        has_trained(loop, self.initial, self.ranks, self.observer.watch.updates)
        self.findings.documents = documents_seen(loop)
        self.findings.notes += [one for one in documents_left_out(loop) if one not in self.findings.notes]
        if ended is None:
            self.observer.timed.repeat(loop, lambda: self._wait("repeat") == AGAIN)
        if self.run.training.measure_memory:
            self._measure(loop)
        if not isinstance(ended, Unproven):
            self.phases.enter("last_trace")
            prove_at_end(loop, self.findings, self.optimizations, self.observer)
        if self._samples and not isinstance(ended, Unproven):
            self.phases.enter("sample")
            add_sample(self.findings, self.folder)
        if self.run.training.gradient_probe:
            self.phases.enter("gradients")
            probe = partial(add_gradient_probe, self.findings, self.folder, self.ranks, self.channel)
            ended = early_end_of(probe) or ended
        self.phases.enter("recording")
        if ended is not None:
            raise ended

    def _keeps_checkpoint(self) -> bool:
        """False for a short cell of a study or a comparison: nobody continues it, and it may cost more than its steps.

        One that asks for checkpoints by their interval, or for a probe of its gradients, has its last. All ranks give
        one answer.
        """
        training = self.run.training
        if not self._is_cell or training.checkpoint_interval or training.gradient_probe:
            return True
        (lasted,) = self.ranks.highest(sum(self.phases.seconds().values()))
        return lasted >= _LONG_SECONDS

    def _build(self) -> Loop:
        self.phases.enter("build")
        return_freed_memory()  # until the timed steps, so that these begin with an unfragmented heap
        findings, earlier = self.findings, self.folder.events()
        built = build_loop(self.folder, findings.spec, self.optimizations, self.observer, self.ranks)
        loop, step, self.initial = built.loop, built.loop.position.step, built.initial
        self.observer.counters = self.counters = Counters(self.run, built.data, self.ranks, loop.position)
        self.counters.watch(loop)
        self.observer.routers = RouterStatistics(loop.step)
        self.observer.watch = UpdateWatch(self.run, loop.step, self.phases.aside, self.ranks)
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
        begun = [*earlier, event_of({"event": "start", **start})]
        unproven, say = history.unproven_steps(begun), self.observer.say_values
        self.observer.values = ValueCheck(self.folder, loop, self.channel, self._reference, say, unproven)
        self.channel.event("start", **start)
        for note in built.notes:
            self.channel.event("note", text=note)
        if step > 0:
            self.observer.recall(history.of_last_mesh(begun)[:-1], step)
        return loop

    def _measure(self, loop: Loop) -> None:
        """Measure memory. Raises `NoEffect` if some of it is kept aside, `WrongValues` if the peak cannot be right."""
        self.phases.enter("memory_pass")
        counted = self.findings.heap
        heap = self.findings.counts_heap and not counted
        memory = measure_memory(loop, self.findings, self.phases.progressed, heap=heap)
        self.findings.memory = memory.model_copy(update=counted)
        if self.ranks.world > 1:
            from assay.worker.ranks import every_rank

            self.findings.ranks = every_rank(loop, self.findings, self.ranks)
        self.counters.peak(loop.step, self.findings.memory, self.findings.trace)
        if fault := self._kept_aside(bool(counted)):
            raise NoEffect(fault)

    def _held_evaluation(self, loop: Loop) -> None:
        """Have groups of the last evaluation evaluated again by the reference process."""
        last = loop.position.evaluation
        if last is not None and last.step == loop.position.step:
            self.observer.values.evaluated(last)
        self.observer.values.note(all_evaluations=self.observer.evaluations)

    def _kept_aside(self, counted: bool) -> str:
        """Return a sentence if optimizations keep memory aside, by the heap that was counted in a timed step."""
        environment, trace = self.findings.environment, self.findings.trace
        if not counted or not self.optimizations or self.run.model.n_expert is not None:
            return ""
        if environment is None or trace is None:
            return ""
        forward = sum(one.count for one in trace.operations if one.phase == "forward")
        return kept_aside(self.findings.memory, environment.threads, forward // max(trace.forwards, 1))

    def _train(self, loop: Loop) -> None:
        """Train the steps of this process. Raises an `EarlyEnd` if they stop before the last."""
        steps = ProvenSteps(
            loop,
            self.findings,
            self.phases,
            self.observer,
            self.optimizations,
            self.blocks,
            lambda: self._wait("block"),
        )
        steps.train()

    def _wait(self, upcoming: str) -> str:
        """Wait for a turn, and return the word that granted it, which is the same on every rank."""
        with self.phases.aside("waiting"):
            word = self.channel.wait(upcoming)
            (again,) = self.ranks.highest(float(word == AGAIN))
        return AGAIN if again else word
