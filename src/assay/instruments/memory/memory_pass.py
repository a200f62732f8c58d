"""The memory pass: the memory of one optimizer step, counted at the allocator and never polled.

On a CPU, the tensors' peak is the bytes of tensors alive before the step, plus its peak of bytes requested from torch's
allocator. Two instruments measure it: torch's own allocator events, and memray's record of `posix_memalign`, which that
allocator calls. They agree to the byte unless kernels request aligned scratch of their own. The first is used, because
it also names the operator; memray gives the heap as a whole. Neither depends on whether memory was touched or for how
long it was held, and both exclude memory-mapped files. If the step frees a tensor from before it, torch's count falls;
memray's does not, because the size is unknown.

Over several ranks the heap is not counted. While memray runs it replaces the process's functions of memory, but gloo's
threads may be inside one of them. A rank once died there (SIGSEGV, Python 3.12).

Scratch that a library requests from the same allocator is reported apart and excluded from the tensors' peak. That peak
is therefore the same on every processor (`instruments.memory.tensor_peak`).

On CUDA the caching allocator's history gives the peak and its blocks, and the profiler the instant. Workspaces of
cuBLAS and blocks that wait for another stream come from the same allocator. Both are counted apart, and the tensors'
peak excludes them (`instruments.memory.allocator_history`). The history also lacks the memory that captured graphs keep
for their replays, because no tensor has it; it is added.

The heap's usage is from memray's full record: every malloc, aligned or not, and every free of the process. Memory maps
are excluded: malloc's own are not recorded anyway, and the others are files and the interpreter's arenas. Recording
takes seconds to set up and slows the step, so it has a pass of its own.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.files import scratch
from assay.instruments.memory.allocator_history import watch_step
from assay.instruments.memory.storages import distinct_bytes
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.records.prediction import PeakBlock


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


_REPEATS_OVER_RANKS = 5


@dataclass(frozen=True)
class MemoryPass:
    """Memory of one optimizer step after the first. None: not counted on this device or machine."""

    tensors_peak_bytes: int
    tensors_peak_instant: str | None = None
    """Phase and operator during which the peak was first reached."""
    library_scratch_bytes: int | None = None
    """Peak of the scratch that libraries requested from torch's allocator; on CUDA the workspaces of cuBLAS."""
    allocator_peak_bytes: int | None = None
    """Peak of tensors and library scratch together."""
    waiting_peak_bytes: int | None = None
    """Peak of freed blocks that waited for another stream; a CPU has none."""
    peak_blocks: tuple[PeakBlock, ...] = ()
    """Blocks of tensors that were alive at their peak; a CPU's allocator has no history of them."""
    workspaces: tuple[PeakBlock, ...] = ()
    """Workspaces that the step made, by thread."""
    reserved_peak_bytes: int | None = None
    """Peak of the memory reserved by torch's caching allocator; a CPU has none."""
    device_peak_bytes: int | None = None
    """Device memory used by all processes at the end of the step; the caching allocator frees none before."""
    heap_peak_bytes: int | None = None
    """Peak growth of the heap, plus the bytes of tensors alive before the step."""
    allocations: int | None = None
    """Number of heap allocations, without memory maps."""
    allocated_bytes: int | None = None
    """Sum of the bytes of these allocations."""


def memory_pass(
    device: torch.device,
    one_step: Callable[[], None],
    live_bytes: int,
    ranks: int = 1,
    idle_bytes: int = 0,
    *,
    heap: bool = True,
) -> MemoryPass:
    """Measure one step, which must not be the first, because that creates the optimizer state.

    `one_step` runs `steps_of_the_pass` times. `live_bytes` are those of tensors before it, `idle_bytes` those that
    graphs keep outside of tensors. gloo's threads may hold tensors longer than the step does. So over several `ranks`
    the step is repeated, and its own peak is the least.
    """
    with _no_collection():
        if device.type == "cuda":
            return _cuda_pass(device, one_step, idle_bytes)
        repeats = 1 if ranks == 1 else _REPEATS_OVER_RANKS
        peak = min((tensor_peak(one_step, "cpu") for _ in range(repeats)), key=lambda one: one.above_start_bytes)
        gc.collect()
        found = heap_of(one_step) if heap and ranks == 1 else None
    return MemoryPass(
        tensors_peak_bytes=live_bytes + peak.above_start_bytes,
        tensors_peak_instant=peak.instant,
        library_scratch_bytes=peak.library_scratch_bytes,
        allocator_peak_bytes=live_bytes + peak.with_scratch_bytes,
        heap_peak_bytes=None if found is None else live_bytes + found.above_start_bytes,
        allocations=None if found is None else found.allocations,
        allocated_bytes=None if found is None else found.allocated_bytes,
    )


def steps_of_the_pass(device: torch.device, ranks: int, *, heap: bool = True) -> int:
    """Count the steps that `memory_pass` runs. On CUDA one is for the counters, and one for the peak's instant."""
    if device.type == "cuda":
        return 2
    return 1 + heap if ranks == 1 else _REPEATS_OVER_RANKS


def live_tensor_bytes(device: torch.device) -> int:
    """Bytes of distinct storages of live tensors on `device`: those known to Python, and their gradients.

    Memory that torch did not allocate (a numpy array, a memory-mapped file) is excluded.
    """
    return distinct_bytes(live_tensors(device))


def live_tensors(device: torch.device) -> Iterator[torch.Tensor]:
    """Yield the tensors that `live_tensor_bytes` counts."""
    gc.collect()
    for one in _known_tensors():
        if one.device.type == device.type and one.layout == torch.strided and is_torchs(one):
            yield one


def _known_tensors() -> Iterator[torch.Tensor]:
    objects = gc.get_objects()
    kinds = list(map(type, objects))
    # There are few kinds among very many objects, so only kinds are asked whether they are tensors.
    tensors = {
        name for name, kind in dict(zip(map(id, kinds), kinds, strict=True)).items() if issubclass(kind, torch.Tensor)
    }
    for one in compress(objects, map(tensors.__contains__, map(id, kinds))):
        yield one
        if one.is_leaf and one.grad is not None:  # a gradient that Python never accessed has no Python object yet
            yield one.grad


def is_torchs(tensor: torch.Tensor) -> bool:
    """True if torch allocated the storage; it cannot resize memory that it only borrows.

    A compiler's fake tensors report a device on which they have no storage. A wrapper subclass has no storage of its
    own, whatever it reports. Its inner tensors are visited themselves, and are fake if it is.
    """
    if is_traceable_wrapper_subclass(tensor):
        return False
    try:
        storage = tensor.untyped_storage()
        return storage.device.type == tensor.device.type and bool(storage.resizable())
    except (NotImplementedError, RuntimeError):
        return False


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage now and not inside, so that the collector's timing does not affect a peak."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _cuda_pass(device: torch.device, one_step: Callable[[], None], idle_bytes: int) -> MemoryPass:
    # The instant is first, while workspaces are there: the profiler would count those that a step makes anew.
    instant = tensor_peak(one_step, "cuda").instant
    step = watch_step(device, one_step)
    free, total = torch.cuda.mem_get_info(device)
    return MemoryPass(
        tensors_peak_bytes=step.peak.tensors_bytes + idle_bytes,
        tensors_peak_instant=instant,
        library_scratch_bytes=step.workspace_bytes + step.graph_workspace_bytes,
        allocator_peak_bytes=step.peak.held_bytes + idle_bytes + step.graph_workspace_bytes,
        waiting_peak_bytes=step.peak.waiting_bytes,
        peak_blocks=step.peak.blocks,
        workspaces=step.peak.workspaces,
        reserved_peak_bytes=step.reserved_bytes,
        device_peak_bytes=total - free,
    )
