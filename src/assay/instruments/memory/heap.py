"""Heap usage of one step, from memray's full record: every malloc, aligned or not, and every free of the process.

Memory maps are excluded: malloc's own are not recorded anyway, and the others are files and the interpreter's arenas.
Recording takes seconds to set up and slows the step, so it has a pass of its own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from assay.files import scratch


@dataclass(frozen=True)
class Heap:
    """Heap usage of one step."""

    above_start_bytes: int
    """Peak of the bytes requested in the step and not yet freed."""
    allocations: int
    allocated_bytes: int
    aligned_above_start_bytes: int
    """Peak of `posix_memalign` alone: torch's CPU allocator, and kernels that align their scratch."""


def heap_of(one_step: Callable[[], None]) -> Heap | None:
    """Run one step under memray; None if memray is not installed. The record is a temporary file."""
    try:
        import memray
    except ImportError:
        return None
    with scratch("heap") as folder:
        record = folder / "allocations.bin"
        _watch(memray.Tracker(record), one_step)
        return _count(memray.FileReader(record).get_allocation_records(), memray.AllocatorType)


def _watch(tracker: AbstractContextManager[object], one_step: Callable[[], None]) -> None:
    with tracker:
        one_step()


def _count(records: Any, kinds: Any) -> Heap:
    maps = {int(kinds.MMAP), int(kinds.MUNMAP)}
    heap, aligned, count, total = _Running(), _Running(), 0, 0
    for record in records:
        if record.allocator in maps:
            continue
        if record.allocator == kinds.FREE:
            heap.free(record.address)
            aligned.free(record.address)
            continue
        count, total = count + 1, total + record.size
        heap.take(record.address, record.size)
        if record.allocator == kinds.POSIX_MEMALIGN:
            aligned.take(record.address, record.size)
    return Heap(heap.peak, count, total, aligned.peak)


class _Running:
    """Running sum of sizes by address. Blocks from before the step are unknown, so freeing them does not count."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0

    def take(self, address: int, size: int) -> None:
        self.free(address)
        self.sizes[address] = size
        self.now += size
        self.peak = max(self.peak, self.now)

    def free(self, address: int) -> None:
        self.now -= self.sizes.pop(address, 0)
