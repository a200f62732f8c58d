"""Observer of a run's training in the measured child: it records findings, and sends them to the parent as events."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from assay.instruments.rates.gpu_state import GpuSampler
from assay.parallel.process_rank import Ranks
from assay.records.events import LogEvent, RouterLayer
from assay.records.evidence import Evidence, ValueProof
from assay.records.timing import Block, Quartiles
from assay.store import history
from assay.training.evaluation import Evaluation
from assay.training.probes import RouterStatistics
from assay.training.step_record import StepRecord
from assay.values.rate_rule import LearningRates
from assay.values.watch import UpdateWatch
from assay.worker.blocks import TimedBlocks
from assay.worker.counter_checks import Counters
from assay.worker.phases import Phases
from assay.worker.processes.channel import Channel
from assay.worker.proof.values import ValueCheck
from assay.worker.result import RunFindings, SteadySteps


class RunObserver:
    """Receives the events of one run's loop (`training.loop.Observer`), and its proofs and timed blocks."""

    routers: RouterStatistics
    """Routing statistics of the built step; the session sets them before the first evaluation."""
    values: ValueCheck
    """Check of the steps' values; the session sets it before the first step."""
    watch: UpdateWatch
    """Watch of all updates; the session sets it before the first step."""
    counters: Counters
    """Counters that are held against each other; the session sets them before the first step."""

    def __init__(
        self,
        channel: Channel,
        phases: Phases,
        findings: RunFindings,
        ranks: Ranks,
        gpu: GpuSampler,
        trained: Callable[[], None],
    ) -> None:
        self.timed = TimedBlocks(phases, findings, ranks, gpu, self.say_block)
        self._channel, self._phases, self._findings, self._ranks = channel, phases, findings, ranks
        self._rates = LearningRates(findings.spec.config)
        self._trained: Callable[[], None] | None = trained
        """Called after the first step of this process that made a finite update."""
        self.evaluations = 0
        """Evaluations of this process."""

    def recall(self, earlier: list[LogEvent], step: int) -> None:
        """Adopt timings of earlier processes on this mesh, and if no step is left also evidence, routing and blocks."""
        steady = [one for one in history.steps(earlier) if one.step < step and one.phase == "steady"]
        self._findings.steady = SteadySteps(
            earlier_tokens=history.step_tokens(steady),
            earlier=Quartiles.of([one.seconds for one in steady]),
            earlier_data_share=history.data_wait_share(steady),
        )
        if step >= self._findings.spec.config.training.steps:
            for evidence in history.evidence(earlier):
                self.say_evidence(evidence)
            self._findings.routers = history.routers(earlier)
            for block in history.blocks(earlier):
                self.say_block(block)

    def say_evidence(self, evidence: Evidence) -> None:
        """Record the proof of one optimization."""
        self._findings.evidence.append(evidence)
        self._channel.event("evidence", **evidence.model_dump())

    def say_values(self, proof: ValueProof) -> None:
        """Record the proof of the values that were compared so far."""
        self._findings.values = proof
        self._channel.event("values", proof=json.loads(proof.model_dump_json()))

    def say_block(self, block: Block) -> None:
        """Record one timed block."""
        self._findings.blocks.append(block)
        self._channel.event("block", **block.model_dump())

    def stepped(self, record: StepRecord) -> None:
        """Hold a step's learning rate, values and counters, and count it in its phase."""
        with self._phases.aside():
            self._rates.hold(record.step, record.learning_rate)
            self.counters.stepped(record)
            self.values.stepped(record)
            self.watch.stepped(record)
            phase = self._phases.current
            self.timed.stepped(record, phase)
            if phase == "first_step":
                self._findings.first_step_seconds = record.seconds
            self._channel.event(
                "step",
                step=record.step,
                loss=record.loss,
                learning_rate=record.learning_rate,
                log_gradient_norm=record.log_gradient_norm,
                activation_norms=record.activation_norms,
                seconds=record.seconds,
                data_seconds=record.data_seconds,
                tokens=record.tokens,
                phase=phase,
                **self._scaling(record),
            )
            if self._trained is not None and record.finite and not record.skipped:
                self._trained()
                self._trained = None

    def _scaling(self, record: StepRecord) -> dict[str, float | bool]:
        """The loss scale, and whether the update was skipped; empty if losses are not scaled."""
        if record.loss_scale == 1.0:
            return {}
        self._findings.loss_scale = record.loss_scale
        return {"loss_scale": record.loss_scale, "skipped": record.skipped}

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hold the windows of an evaluation and send its figures, and the routing since the last one."""
        with self._phases.aside():
            self.counters.evaluated(evaluation)
            self.evaluations += 1
            if evaluation.step == self.values.drawn_evaluation:
                self.values.evaluated(evaluation)
            self._channel.event("evaluation", **evaluation.facts())
            if layers := [RouterLayer(**asdict(layer)) for layer in self.routers.take()]:
                self._findings.routers = layers
                self._channel.event("router", step=evaluation.step, layers=[one.model_dump() for one in layers])

    def progressed(self, done: int, total: int) -> None:
        """Report how many parts of the current phase are done."""
        self._phases.progressed(done, total)

    def saved(self, folder: Path, step: int) -> None:
        """Send the name of a new checkpoint."""
        with self._phases.aside():
            self._channel.event("checkpoint", step=step, folder=folder.name)

    def interrupted(self) -> bool:
        """True if a stop was requested of any rank."""
        (asked,) = self._ranks.highest(float(self._channel.interrupted))
        return asked > 0

    def during(self, phase: str) -> AbstractContextManager[None]:
        """Enter a phase for the block."""
        return self._phases.during(phase)
