"""Memory figures of a run, each with its place of measurement, and the estimator's prediction of a run's figures."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import Field

from assay.records.base import Record
from assay.records.ranks import Sent

_Number = TypeVar("_Number", int, float)


def highest(values: Iterable[_Number | None]) -> _Number | None:
    """Return the highest of the figures that are known; None if none is."""
    return max((value for value in values if value is not None), default=None)


class PeakBlock(Record):
    """Equal blocks of memory that are alive at a peak."""

    nbytes: int
    """Bytes that were requested for each of them."""
    count: int
    made: str
    """Their maker: a line, ``backward`` or ``before the step``. In a prediction it is their part of memory."""


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
    waiting_peak_bytes: int | None = None
    """Peak bytes of freed blocks that waited for another stream; in no tensor figure. None on a CPU."""
    peak_blocks: tuple[PeakBlock, ...] = ()
    """Blocks of tensors that were alive at their peak; empty on a CPU and in older records."""
    workspaces: tuple[PeakBlock, ...] = ()
    """Workspaces of cuBLAS by thread, whose sum is the library scratch; empty on a CPU and in older records."""
    reserved_peak_bytes: int | None = None
    """Peak bytes held by torch's caching allocator; None on a CPU."""
    process_peak_bytes: int | None = None
    """Peak anonymous resident memory in a settling step: the lowest of the timed blocks, which proofs add to."""
    heap_peak_bytes: int | None = None
    """Peak bytes live on the heap in the memory pass, by memray, without memory maps.

    None over several ranks, and in a cell without times.
    """
    device_peak_bytes: int | None = None
    """Bytes of the device's memory in use by all processes, as the driver reports it."""
    allocations: int | None = None
    """Heap allocations in one optimizer step, by memray; None where the heap is not counted."""
    allocated_bytes: int | None = None
    """Sum of the bytes that those allocations requested."""
    tensors_peak_instant: str | None = None
    """Operation during which the peak of the tensors was reached."""
    saved_bytes: Mapping[str, int] = Field(default_factory=dict)
    """Bytes saved for backward, by category (from the trace)."""
    phases: Mapping[str, PhaseMemory] = Field(default_factory=dict)


class PredictedRank(Record):
    """The estimator's prediction for one rank."""

    tensors_peak_bytes: int
    sent_bytes: int
    saved_bytes: int | None = None
    sent: tuple[Sent, ...] = ()
    """Payload by collective and axis; empty in older records."""
    idle_share: float | None = None
    """Idle share of a simulated pipeline: its stages take time in proportion to their FLOPs, and its sends are free."""


class MemoryOverStep(Record):
    """Predicted bytes that are alive during a step, by category, at the highest instant of each part of the step."""

    instants: tuple[str, ...]
    """Phase, operation and module of each instant, in their order."""
    layers: Mapping[str, tuple[int, ...]]
    """Bytes of each category at each instant, from the lowest layer of a figure on; they sum to the bytes alive."""

    @property
    def alive(self) -> tuple[int, ...]:
        """Bytes alive at each instant."""
        return tuple(map(sum, zip(*self.layers.values(), strict=True)))


# More than 20 fields: each figure of a run has its prediction here, under the same name.
class Predicted(Record):
    """The estimator's prediction of a result's figures, and FLOPs. On several ranks, of the rank that holds most."""

    tensors_peak_bytes: int | None = None
    tensors_peak_instant: str | None = None
    peak_blocks: tuple[PeakBlock, ...] = ()
    """Blocks of tensors alive at their peak on a GPU, by part; empty on a CPU, of a trace and in older records."""
    library_scratch_bytes: int | None = None
    """Upper bound: a library may take less, or none while the tensors are at their peak."""
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    heap_peak_bytes: int | None = None
    allocations: int | None = None
    saved_bytes: int | None = None
    step_flops: int | None = None
    """FLOPs executed by one optimizer step, recomputation included: the numerator of HFU."""
    model_flops: int | None = None
    """FLOPs that the model of one step needs, without recomputation: the numerator of MFU. None in older records."""
    peak_flops: float | None = None
    """FLOP/s of all devices of the run at the peak of the dtypes in which they multiply (`hardware.devices`), the
    denominator; None if it is unknown. Older records have the 16-bit peak of a GPU, or a CPU's highest rate."""
    step_seconds: float | None = None
    """Seconds from timed steps of few blocks, or from measured rates of this machine and, on several ranks, of its
    link; None if these are unknown."""
    step_seconds_margin: float | None = None
    """Half of the 95 % interval relative to `step_seconds`, if steps were timed; None for a roofline."""
    under_load: bool = False
    """True if other programs used the machine while steps were timed; the margin is wider then."""
    roofline_factor: float | None = None
    """Up to how many times as long or as short as its roofline a step is, in 95 % of measured cases; None if it is not
    known."""
    roofline_seconds: float | None = None
    """Seconds of the work at measured rates; None in older records, whose `step_seconds` is that."""
    memory: MemoryOverStep | None = None
    """None in older records."""
    ranks: tuple[PredictedRank, ...] = ()
    """Prediction for each rank; empty on one rank."""
    bubble_share: float | None = None
    """Idle share of a pipeline with equal stages by its schedule's formula, (p−1)/(vm + p−1) or a variant."""
    traced: bool = False
    """True if the peak is that of the program itself on fake tensors, because no ledger knows its operations."""
    refused: str | None = None
    """Why nothing is predicted, in one sentence; None if something is."""

    def utilization(self, seconds: float) -> dict[str, float]:
        """Return the MFU and the HFU of a step that takes so many seconds, as far as their parts are known.

        Both are shares of the peak of all devices. MFU (model FLOPs utilization) counts the FLOPs that the model needs.
        HFU (hardware FLOPs utilization) counts those that were executed, as in arXiv:2205.05198, section 6.
        """
        if not self.peak_flops:
            return {}
        work = {"MFU": self.model_flops, "HFU": self.step_flops}
        return {name: flops / self.peak_flops / seconds for name, flops in work.items() if flops}

    @property
    def work_seconds(self) -> float | None:
        """Seconds of the work at measured rates, of a record of any age; None if the rates are unknown."""
        if self.roofline_seconds is None and self.step_seconds_margin is None:
            return self.step_seconds
        return self.roofline_seconds
