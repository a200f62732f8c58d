"""Memory figures of a run, each with the place at which it is measured, and the blocks of a peak."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import Field

from assay.records.base import Record

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
