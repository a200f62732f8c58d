"""The record of one run: the schema of `result.json`, of the store's rows and of ``--json``.

Every figure is in a base unit that its name states. `None` means that the figure is not available, never zero.
"""

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field

from assay.config.run import Run
from assay.runs.rank_record import PredictedRank, RankResult, Record
from assay.step.evidence import Evidence, ValueProof


class Status(StrEnum):
    """Status of a run, determined from its process if the run could not record one itself."""

    RUNNING = "running"
    DONE = "done"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    TIMED_OUT = "timed_out"
    NO_EFFECT = "no_effect"
    WRONG_VALUES = "wrong_values"
    INTERRUPTED = "interrupted"
    BUDGET_REACHED = "budget_reached"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    DAMAGED = "damaged"
    """Part of a run's files cannot be read, and no process runs it any more."""

    @property
    def resumable(self) -> bool:
        """True if the run can go on from its last checkpoint."""
        stopped = {Status.INTERRUPTED, Status.BUDGET_REACHED, Status.TIMED_OUT, Status.KILLED}
        return self in stopped | {Status.FAILED, Status.UNAVAILABLE, Status.DAMAGED}

    @property
    def failure(self) -> bool:
        """True if the status makes a comparison fail; running out of memory and diverging are results there."""
        return self in {Status.NO_EFFECT, Status.WRONG_VALUES, Status.KILLED, Status.FAILED, Status.TIMED_OUT}

    @property
    def exit_code(self) -> int:
        """The command line's exit code for a single run with this status."""
        return {
            Status.DONE: 0,
            Status.RUNNING: 0,
            Status.FAILED: 1,
            Status.UNAVAILABLE: 2,
            Status.BUDGET_REACHED: 4,
            Status.INTERRUPTED: 130,
        }.get(self, 3)


class Quartiles(Record):
    """Median, quartiles and size of a sample."""

    median: float
    lower: float
    upper: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Quartiles of `values` with linear interpolation; None if there are no values."""
        if len(values) < 2:
            return cls(median=values[0], lower=values[0], upper=values[0], count=1) if values else None
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper, count=len(values))


DISTURBED = 0.1
"""Share of all processor time that others must take for a block to count as disturbed."""
LEAST_DISTURBANCE_SECONDS = 0.04
"""Least processor time that counts: the kernel counts in hundredths of a second, and a few of them disturb nothing."""


class Block(Record):
    """One timed block: consecutive steady steps. The other cells of a comparison take their turns between blocks.

    It begins with a settling step if it has several steps. The settling step is not timed and counts only for
    `process_peak_bytes`.
    """

    steps: int
    seconds: float
    """Sum of the timed steps' seconds."""
    median_step_seconds: float
    tokens: int
    process_peak_bytes: int | None = None
    """High-water mark of the process's resident anonymous memory in the block's settling step, or its only step."""
    steal_seconds: float | None = None
    """Processor time that a hypervisor gave to others during the timed steps, summed over all cores."""
    others_seconds: float | None = None
    """Processor time of processes outside this run during the timed steps, summed over all cores."""
    load: float | None = None
    """Runnable and running tasks at the end of the block, averaged over a minute by the kernel."""
    clock_hertz: float | None = None
    """Mean clock frequency of the cores at the end of the block."""
    cores: int | None = None
    """Number of cores over which processor times were summed."""
    repeated: bool = False
    """True if the block's steps followed the run's last one and were discarded, to replace a disturbed block."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Read a block from its event, in which fields may be missing if an earlier version wrote it."""
        return cls.model_validate({name: event[name] for name in cls.model_fields if name in event})

    @property
    def disturbed(self) -> bool:
        """True if others took more than `DISTURBED` of the processor time of the timed steps."""
        if self.others_seconds is None or self.cores is None:
            return False
        taken = self.others_seconds + (self.steal_seconds or 0.0)
        return taken > max(DISTURBED * self.cores * self.seconds, LEAST_DISTURBANCE_SECONDS)


class PhaseMemory(Record):
    """Peaks within one phase of the run; the process's high-water mark is reset between phases."""

    process_peak_bytes: int | None = None
    """Peak resident memory (VmHWM), file pages included."""
    anonymous_bytes: int | None = None
    """Resident anonymous memory at the end of the phase."""
    file_bytes: int | None = None
    """Resident file pages at the end of the phase, for instance of memory-mapped tokens."""
    tensors_peak_bytes: int | None = None


class Memory(Record):
    """Memory figures of a run, each with the place at which it is measured."""

    tensors_peak_bytes: int | None = None
    """Peak bytes requested from torch's allocator in one optimizer step after the first, live tensors included."""
    library_scratch_bytes: int | None = None
    """Peak bytes that libraries requested from that allocator for themselves; in no tensor figure."""
    allocator_peak_bytes: int | None = None
    """Peak of tensors and library scratch together."""
    reserved_peak_bytes: int | None = None
    """Peak bytes held by torch's caching allocator; None on a CPU."""
    process_peak_bytes: int | None = None
    """Peak anonymous resident memory in the settling steps of the timed blocks."""
    heap_peak_bytes: int | None = None
    """Peak bytes live on the heap in the memory pass, by memray, without memory maps."""
    device_peak_bytes: int | None = None
    """Bytes of the device's memory in use by all processes, as the driver reports it."""
    allocations: int | None = None
    """Heap allocations in one optimizer step, by memray."""
    allocated_bytes: int | None = None
    """Sum of the bytes that those allocations requested."""
    tensors_peak_instant: str | None = None
    """Operation during which the peak of the tensors was reached."""
    saved_bytes: Mapping[str, int] = Field(default_factory=dict)
    """Bytes saved for backward, by category (from the trace)."""
    phases: Mapping[str, PhaseMemory] = Field(default_factory=dict)


class Predicted(Record):
    """The estimator's prediction of a result's figures, and FLOPs. On several ranks, of the rank that holds most."""

    tensors_peak_bytes: int | None = None
    tensors_peak_instant: str | None = None
    library_scratch_bytes: int | None = None
    """Upper bound: a library may take less, or none while the tensors are at their peak."""
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    heap_peak_bytes: int | None = None
    allocations: int | None = None
    saved_bytes: int | None = None
    step_flops: int | None = None
    """FLOPs executed by one optimizer step, recomputation included."""
    step_seconds: float | None = None
    """Seconds from measured rates of this machine and, on several ranks, of its link; None if these are unknown."""
    ranks: tuple[PredictedRank, ...] = ()
    """Prediction for each rank; empty on one rank."""
    bubble_share: float | None = None
    """Idle share of a pipeline with equal stages by its schedule's formula, (p−1)/(vm + p−1) or a variant."""


class Environment(Record):
    """Surroundings that decide a figure. Results from different environments are never compared without a warning."""

    assay: str
    torch: str
    python: str
    device: str
    processor: str
    cores: int
    threads: int
    """Threads for CPU kernels, summed over ranks."""
    memory_bytes: int
    accelerator: str | None = None
    driver: str | None = None
    corpus_digest: str | None = None
    packages: Mapping[str, str] = Field(default_factory=dict)
    instruction_set: str | None = None
    """Newest instruction set that the CPU's kernels use; None in records older than this field."""

    def differs(self, other: "Environment") -> list[str]:
        """Names of the fields in which two environments differ."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]


class RunResult(Record):
    """The complete record of one run."""

    run: str
    """The run's id, which is its folder's name."""
    status: Status
    reason: str | None = None
    """One sentence for every status except `done`."""
    created: str
    """UTC, ISO 8601."""
    identity: str
    """Hash of the canonical configuration."""
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    config: Run
    steps: int = 0
    tokens: int = 0
    parameters: int | None = None
    train_loss: float | None = None
    """Loss of the last step, averaged over its tokens."""
    val_loss: float | None = None
    val_perplexity: float | None = None
    val_bits_per_byte: float | None = None
    val_targets: int | None = None
    """Number of held-out tokens that were predicted for `val_loss`."""
    val_split_targets: int | None = None
    """Number of held-out tokens that can be predicted."""
    val_standard_error: float | None = None
    """Standard error of `val_loss` as an estimate for the whole held-out text; 0 if all of it was evaluated."""
    tokens_per_second: float | None = None
    """Tokens per step over the median seconds of a steady step."""
    step_seconds: Quartiles | None = None
    data_wait_share: float | None = None
    """Share of the steady steps' seconds in which the host waited for its batch; on several ranks, the first rank's."""
    phase_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Seconds of each phase; they sum to the wall time of the last process."""
    memory: Memory = Field(default_factory=Memory)
    ranks: tuple[RankResult, ...] = ()
    """Record of each rank; empty on one rank. `memory` has the highest figures of all ranks."""
    predicted: Predicted | None = None
    evidence: tuple[Evidence, ...] = ()
    values: ValueProof | None = None
    """Result of the value check; None in records older than it, and if a run ended before it."""
    proven_until: Literal["beginning", "end"] | None = None
    """`end` if a step traced after the last checkpoint showed the same; None without evidence and in older records."""
    environment: Environment | None = None
    blocks: tuple[Block, ...] = ()
    first_step_seconds: float | None = None
    skipped_steps: int = 0
    """Updates that were skipped because a gradient was not finite (fp16)."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
