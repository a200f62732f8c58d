"""What is known of one run: the schema of `result.json`, of the store's rows and of ``--json``.

Every figure is in a base unit that its name states. `None` means that the figure could not be had, never zero.
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
    """How a run ended, decided from its process where it could not say so itself."""

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
    """What is on the disk of a run that is over cannot be read, or not all of it."""

    @property
    def resumable(self) -> bool:
        """Whether going on from the last checkpoint makes sense."""
        stopped = {Status.INTERRUPTED, Status.BUDGET_REACHED, Status.TIMED_OUT, Status.KILLED}
        return self in stopped | {Status.FAILED, Status.UNAVAILABLE, Status.DAMAGED}

    @property
    def failure(self) -> bool:
        """Whether it fails a comparison; running out of memory and diverging are results there."""
        return self in {Status.NO_EFFECT, Status.WRONG_VALUES, Status.KILLED, Status.FAILED, Status.TIMED_OUT}

    @property
    def exit_code(self) -> int:
        """The command line's exit code for a single run that ended so."""
        return {
            Status.DONE: 0,
            Status.RUNNING: 0,
            Status.FAILED: 1,
            Status.UNAVAILABLE: 2,
            Status.BUDGET_REACHED: 4,
            Status.INTERRUPTED: 130,
        }.get(self, 3)


class Quartiles(Record):
    """Of a sample: median and quartiles, and how many values."""

    median: float
    lower: float
    upper: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Of these values, with linear interpolation; None of nothing."""
        if len(values) < 2:
            return cls(median=values[0], lower=values[0], upper=values[0], count=1) if values else None
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper, count=len(values))


DISTURBED = 0.1
"""Share of all processor time from which a block counts as disturbed by others."""
LEAST_DISTURBANCE_SECONDS = 0.04
"""The kernel counts in hundredths of a second; a few of them are no disturbance."""


class Block(Record):
    """One timed block: consecutive steady steps, between which other cells of a comparison had their turn.

    It begins with a settling step, which is in none of these figures but the process's mark.
    """

    steps: int
    seconds: float
    """Of the steps alone, summed."""
    median_step_seconds: float
    tokens: int
    process_peak_bytes: int | None = None
    """High-water mark of the process's resident anonymous memory in this block's settling step."""
    steal_seconds: float | None = None
    """Processor time that a hypervisor gave to others during the timed steps, over all cores."""
    others_seconds: float | None = None
    """Processor time of processes that are not of this run, over all cores."""
    load: float | None = None
    """Tasks that ran or wanted to, averaged over a minute by the kernel, at the end of the block."""
    clock_hertz: float | None = None
    """Mean clock frequency of the cores at the end of the block."""
    cores: int | None = None
    """Cores over which these were counted."""
    repeated: bool = False
    """True if its steps came after the run's last and were discarded, in place of a block that was disturbed."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """A block from its event, which may be of an earlier version and lack some fields."""
        return cls.model_validate({name: event[name] for name in cls.model_fields if name in event})

    @property
    def disturbed(self) -> bool:
        """True if others had more than `DISTURBED` of the processor time of the timed steps."""
        if self.others_seconds is None or self.cores is None:
            return False
        taken = self.others_seconds + (self.steal_seconds or 0.0)
        return taken > max(DISTURBED * self.cores * self.seconds, LEAST_DISTURBANCE_SECONDS)


class PhaseMemory(Record):
    """Peaks within one phase of the run; the process's mark is reset between phases."""

    process_peak_bytes: int | None = None
    """Resident set at its highest (VmHWM), file pages included."""
    anonymous_bytes: int | None = None
    """Resident anonymous memory at the end of the phase."""
    file_bytes: int | None = None
    """Resident file pages at the end of the phase, for instance of memory-mapped tokens."""
    tensors_peak_bytes: int | None = None


class Memory(Record):
    """The four numbers, and where they were taken."""

    tensors_peak_bytes: int | None = None
    """Most bytes requested from torch's allocator in one optimizer step after the first, live tensors included."""
    library_scratch_bytes: int | None = None
    """Most that libraries requested from that allocator for themselves at once; in no figure of tensors."""
    allocator_peak_bytes: int | None = None
    """Most of tensors and library scratch together."""
    reserved_peak_bytes: int | None = None
    """Most bytes that torch's caching allocator held; a CPU has none."""
    process_peak_bytes: int | None = None
    """Most anonymous resident memory in the settling steps of the timed blocks."""
    heap_peak_bytes: int | None = None
    """Most bytes live on the heap in the memory pass, by memray, memory maps left out."""
    device_peak_bytes: int | None = None
    """Taken on the device by everyone, as the driver reports it."""
    allocations: int | None = None
    """Heap allocations in one optimizer step, by memray (the first seed's column, per step)."""
    allocated_bytes: int | None = None
    """Bytes those allocations asked for, summed."""
    tensors_peak_instant: str | None = None
    """The operation during which the tensors' peak was reached."""
    saved_bytes: Mapping[str, int] = Field(default_factory=dict)
    """Kept for backward, by category (from the trace)."""
    phases: Mapping[str, PhaseMemory] = Field(default_factory=dict)


class Predicted(Record):
    """What the estimator said before the run: the same keys, and FLOPs. Over ranks, of the one that holds most."""

    tensors_peak_bytes: int | None = None
    tensors_peak_instant: str | None = None
    library_scratch_bytes: int | None = None
    """At most: a library may take less, or none while the tensors are at their peak."""
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    heap_peak_bytes: int | None = None
    allocations: int | None = None
    saved_bytes: int | None = None
    step_flops: int | None = None
    """Executed by one optimizer step, recomputation included."""
    step_seconds: float | None = None
    """From measured rates of this machine, and over ranks of the link between them, where they are known."""
    ranks: tuple[PredictedRank, ...] = ()
    """One for each, where there are several."""
    bubble_share: float | None = None
    """What a formula says that a rank of a pipeline idles, all stages being equal: (p−1)/(vm + p−1), or its variant."""


class Environment(Record):
    """What else decides a figure: results of unlike environments are never compared silently."""

    assay: str
    torch: str
    python: str
    device: str
    processor: str
    cores: int
    threads: int
    """For CPU kernels, of all ranks together."""
    memory_bytes: int
    accelerator: str | None = None
    driver: str | None = None
    corpus_digest: str | None = None
    packages: Mapping[str, str] = Field(default_factory=dict)
    instruction_set: str | None = None
    """The newest that the CPU's kernels use; None in records from before it was noted."""

    def differs(self, other: "Environment") -> list[str]:
        """Names of the fields in which two environments are unlike."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]


class RunResult(Record):
    """One run, whole."""

    run: str
    """The run's id: its folder's name."""
    status: Status
    reason: str | None = None
    """One sentence, for every status but `done`."""
    created: str
    """UTC, ISO 8601."""
    identity: str
    """Hash of the canonical configuration."""
    preset: str | None = None
    """The preset or file that the configuration began with."""
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
    """Tokens of the held-out text that were predicted for `val_loss`."""
    val_split_targets: int | None = None
    """Tokens of the held-out text that could be predicted."""
    val_standard_error: float | None = None
    """Standard error of `val_loss` as an estimate for the whole held-out text; 0 where all of it was evaluated."""
    tokens_per_second: float | None = None
    """Tokens per step over the median steady step."""
    step_seconds: Quartiles | None = None
    data_wait_share: float | None = None
    """Of the steady steps' seconds, those in which the host waited for its batch; over ranks, the first rank's."""
    phase_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Named parts that sum to the wall clock of the last process."""
    memory: Memory = Field(default_factory=Memory)
    ranks: tuple[RankResult, ...] = ()
    """One for each, where there are several; `memory` has the highest of them."""
    predicted: Predicted | None = None
    evidence: tuple[Evidence, ...] = ()
    values: ValueProof | None = None
    """What the value check found; None in records that are older than it, and where a run ended before it."""
    proven_until: Literal["beginning", "end"] | None = None
    """`end`: a step traced after the last checkpoint showed the same; None without evidence, and in older records."""
    environment: Environment | None = None
    blocks: tuple[Block, ...] = ()
    first_step_seconds: float | None = None
    skipped_steps: int = 0
    """Updates left out because a gradient was not finite (fp16)."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
