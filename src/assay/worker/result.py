"""The result of a run while it is being measured, so that the figures known so far can be recorded at any moment.

Totals (steps, tokens, skipped updates) are over all processes of a run; times, blocks and memory are of this one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING, Literal

from assay.config.run import ResolvedRun
from assay.proofs.mispredicted import mispredictions
from assay.records.events import EvaluationEvent, RouterLayer
from assay.records.evidence import Evidence, ValueProof
from assay.records.gradients import GradientProbe, ModuleGradient
from assay.records.prediction import Memory, highest
from assay.records.ranks import RankResult
from assay.records.run import Environment, Loss, Proof, RunResult, SampledText, Speed, TraceSummary
from assay.records.status import Status
from assay.records.timing import Block, Quartiles
from assay.records.trace import Trace
from assay.store.result import RunFigures, evaluation_figures, result_of, steady_speed
from assay.store.run_folder import RunSpec

if TYPE_CHECKING:
    from assay.training.step_record import Position
    from assay.worker.phases import Phases

_OF_LINUX = "it is read from {}, which only Linux has"
_ALL_REPLAYED = "it is read around timed steps, and all of these were replayed by the proof"
_NO_MEMRAY = "memray is not installed; there is none for Windows"
_NO_TIMES = "a cell without times does not count it, because that takes as long as many small steps"
_OF_BLOCKS = {
    "others_seconds": _OF_LINUX.format("/proc/stat"),
    "load": _OF_LINUX.format("/proc/loadavg"),
    "clock_hertz": "neither the kernel's driver of the clock nor /proc/cpuinfo tells it",
}

_OF_TEXT = ("val_perplexity", "val_bits_per_byte", "epoch_seconds", "sample")
_OF_VALIDATION = ("val_loss", "val_targets", "val_split_targets", "val_standard_error")


@dataclass
class SteadySteps:
    """Timings of the steady steps of this process, and of earlier ones for as long as this process has none."""

    seconds: list[float] = field(default_factory=list)
    data_seconds: list[float] = field(default_factory=list)
    """Seconds of each step in which the host waited for its batch."""
    counted: list[int] = field(default_factory=list)
    """Tokens of each step, as counted."""
    earlier: Quartiles | None = None
    """Quartiles of the steps of earlier processes."""
    earlier_tokens: int | None = None
    """Mean tokens of those steps."""
    earlier_data_share: float | None = None
    """Share of those steps in which the host waited for data."""

    @property
    def quartiles(self) -> Quartiles | None:
        """Quartiles of the seconds of a step."""
        return Quartiles.of(self.seconds) or self.earlier

    @property
    def tokens(self) -> int | None:
        """Mean tokens of a step."""
        return round(mean(self.counted)) if self.counted else self.earlier_tokens

    @property
    def data_wait_share(self) -> float | None:
        """Share of the steps in which the host waited for data."""
        spent = sum(self.seconds)
        return sum(self.data_seconds) / spent if spent else self.earlier_data_share


# More than 20 fields: it becomes the published record, whose fields it fills one by one.
@dataclass
class RunFindings:
    """All results of the child so far."""

    spec: RunSpec
    phases: Phases
    position: Position | None = None
    parameters: int | None = None
    split_tokens: int | None = None
    """Tokens of the training text."""
    documents: int | None = None
    """Documents of a stream of which training has read a token."""
    loss_spread: float | None = None
    environment: Environment | None = None
    trace: Trace | None = None
    first_step_seconds: float | None = None
    steady: SteadySteps = field(default_factory=SteadySteps)
    blocks: list[Block] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    values: ValueProof | None = None
    proven_until: Literal["beginning", "end"] = "beginning"
    """The last traced step that showed the evidence."""
    gradients: tuple[ModuleGradient, ...] = ()
    """Scale of each module's gradient in a discarded step at the end."""
    gradient_probe: GradientProbe | None = None
    """Agreement of micro-batches' gradients at the end."""
    memory: Memory = field(default_factory=Memory)
    """Figures of the memory pass."""
    counts_heap: bool = True
    """False in a cell without times."""
    heap: Mapping[str, int] = field(default_factory=dict)
    """Figures of the heap in a step of the timed blocks; empty if it was not counted there."""
    routers: Sequence[RouterLayer] = ()
    """Routing statistics of each layer between the last two evaluations."""
    loss_scale: float | None = None
    """Loss scale of the last step, if losses are scaled."""
    ranks: tuple[RankResult, ...] = ()
    sample: SampledText | None = None
    """A text of the trained model."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Number of steps and of evaluations whose rows were held against the slow rule."""
    notes: list[str] = field(default_factory=list)

    def result(self, status: Status, reason: str | None) -> RunResult:
        """The result so far, with the given status and reason."""
        memory = self._memory()
        result = result_of(
            self.spec,
            status,
            reason,
            self._figures(),
            self.environment,
            documents=self.documents,
            parameters=self.parameters,
            memory=memory,
            missing=dict(missing_figures(memory, self.blocks, self.spec.config, heap=self.counts_heap)),
            ranks=self.ranks,
        )
        return result.model_copy(update={"notes": (*self.notes, *mispredictions(result))})

    def _figures(self) -> RunFigures:
        speed = Speed(
            first_step_seconds=self.first_step_seconds,
            data_wait_share=self.steady.data_wait_share,
            phase_seconds=self.phases.seconds(),
            blocks=tuple(self.blocks),
            **steady_speed(self.steady.quartiles, self.steady.tokens, self.split_tokens),
        )
        proof = Proof(
            evidence=tuple(self.evidence),
            values=self.values,
            proven_until=self.proven_until if self._proven else None,
            trace=trace_summary(self.trace) if self.trace else None,
            counters=dict(self.counters),
        )
        found = RunFigures(loss=self._loss(), speed=speed, proof=proof)
        return found if self.position is None else replace(found, steps=self.position.step, tokens=self.position.tokens)

    def _loss(self) -> Loss:
        found = Loss(
            loss_spread=self.loss_spread,
            gradients=self.gradients,
            gradient_probe=self.gradient_probe,
            sample=self.sample,
            routers=tuple(self.routers),
            loss_scale=self.loss_scale,
        )
        if self.position is None:
            return found
        seen = self.position.evaluation
        last = {"train_loss": self.position.train_loss, "skipped_steps": self.position.skipped_steps}
        evaluation = EvaluationEvent(event="evaluation", **seen.facts()) if seen else None
        return found.model_copy(update={**last, **evaluation_figures(evaluation)})

    @property
    def _proven(self) -> bool:
        """True if there is evidence and all of it holds."""
        return bool(self.evidence) and all(one.verdict for one in self.evidence)

    @property
    def process_peak_bytes(self) -> int | None:
        """Lowest peak of this process over the timed blocks, without repeated ones.

        Replayed and profiled steps leave memory in the process that no step of its own needs.
        """
        known = (block.process_peak_bytes for block in self.blocks if not block.repeated)
        return min((peak for peak in known if peak is not None), default=None)

    def _memory(self) -> Memory:
        own = self.memory.model_copy(
            update={
                "process_peak_bytes": self.process_peak_bytes,
                "saved_bytes": dict(self.trace.memory.saved_bytes) if self.trace else {},
                "phases": dict(self.phases.memory),
            }
        )
        if not self.ranks:
            return own
        peaks = ("tensors_peak_bytes", "process_peak_bytes")
        return own.model_copy(update={name: highest(getattr(one, name) for one in self.ranks) for name in peaks})


def trace_summary(trace: Trace) -> TraceSummary:
    """Summary of a trace for reports: contractions by phase and dtype, FLOPs by phase, bytes, host reads."""
    contractions: dict[str, dict[str, int]] = {}
    flops: dict[str, int] = {}
    for operation in trace.operations:
        flops[operation.phase] = flops.get(operation.phase, 0) + operation.flops
        if operation.operation_class == "contraction":
            by_dtype = contractions.setdefault(operation.phase, {})
            by_dtype[operation.dtype] = by_dtype.get(operation.dtype, 0) + operation.count
    return TraceSummary(
        contractions=contractions,
        flops=flops,
        forwards=trace.forwards,
        saved_bytes=dict(trace.memory.saved_bytes),
        parameter_bytes=trace.memory.parameter_bytes,
        gradient_bytes=trace.memory.gradient_bytes,
        optimizer_state_bytes=trace.memory.optimizer_state_bytes,
        shared_parameters=tuple(tuple(names) for names in trace.shared_parameters),
        synchronizations=dict(trace.synchronizations),
    )


def missing_figures(
    memory: Memory, blocks: Sequence[Block], run: ResolvedRun, *, heap: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the name of each figure that was to be measured and is None, with the reason.

    A run that ended before its first timed block, or before the memory pass, was to measure nothing there. The heap is
    counted on a CPU and on one rank only; a GPU has reserved memory instead. `heap` is false where it was left out.
    """
    if blocks and memory.process_peak_bytes is None:
        on_linux = any(one.load is not None for one in blocks)
        yield "memory.process_peak_bytes", _ALL_REPLAYED if on_linux else _OF_LINUX.format("/proc/self/status")
    on_cpu = memory.library_scratch_bytes is not None and memory.reserved_peak_bytes is None
    if run.ranks == 1 and on_cpu and memory.heap_peak_bytes is None:
        yield "memory.heap_peak_bytes", _NO_MEMRAY if heap else _NO_TIMES
    for name, reason in _OF_BLOCKS.items():
        if blocks and all(getattr(one, name) is None for one in blocks):
            replayed = name == "others_seconds" and sys.platform == "linux"
            yield f"blocks.{name}", _ALL_REPLAYED if replayed else reason
    if run.own_rows is not None:
        yield from dict.fromkeys(_OF_TEXT, "the batches are your own, and no text").items()
        if not run.own_rows.validation:
            yield from dict.fromkeys(_OF_VALIDATION, "your assay.OwnModel has no validation batches").items()
