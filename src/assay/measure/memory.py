"""The memory pass: what one optimizer step asks for, counted at the allocator and never polled.

On a CPU the step runs twice, once under each instrument. Torch's own allocator events (its profiler's) give the
tensors: the running sum of what is requested and returned, above the tensors that were alive before, and the operator
inside which it was highest. memray gives the heap: every malloc of the process, memory maps of files left out. A peak from
events does not depend on whether the memory was touched, or for how long it was held. On CUDA the caching allocator's
counters say all of it, and one step is enough.
"""

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class MemoryPass:
    """Figures of one optimizer step after the first. None: this device or machine does not count it."""

    tensors_peak_bytes: int
    tensors_peak_instant: str | None = None
    """Phase and operator during which the peak was reached."""
    reserved_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    heap_peak_bytes: int | None = None
    allocations: int | None = None
    allocated_bytes: int | None = None


def memory_pass(device: torch.device, one_step: Callable[[], None], live_bytes: int) -> MemoryPass:
    """Measure one step. `one_step` is called once per instrument; `live_bytes` are the tensors alive before it."""
    gc.collect()
    if device.type == "cuda":
        return _cuda_pass(device, one_step)
    above, instant = tensor_peak(one_step)
    heap = heap_pass(one_step)
    return MemoryPass(
        tensors_peak_bytes=live_bytes + above,
        tensors_peak_instant=instant,
        heap_peak_bytes=heap.peak_bytes if heap else None,
        allocations=heap.allocations if heap else None,
        allocated_bytes=heap.allocated_bytes if heap else None,
    )


def live_tensor_bytes(device: torch.device) -> int:
    """Bytes of the distinct storages of all tensors that Python knows on a device."""
    storages: dict[int, int] = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.device.type == device.type:
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def tensor_peak(one_step: Callable[[], None]) -> tuple[int, str]:
    """Most bytes requested from torch's CPU allocator and not returned, above the start; and the instant."""
    from torch._C._profiler import _EventType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        one_step()
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is None:
        raise RuntimeError("torch's profiler recorded nothing")
    pending, events = list(results.experimental_event_tree()), []
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag == _EventType.Allocation:
            events.append(event)
    live = peak = 0
    highest: Any = None
    for event in sorted(events, key=lambda one: one.start_time_ns):
        live += event.extra_fields.alloc_size
        if live > peak:
            peak, highest = live, event
    return peak, _instant(highest)


def _instant(event: Any) -> str:
    """`backward: MmBackward`, `update: AdamW` or `forward: aten.mm`, from the frames around an allocation."""
    frames = []
    while event is not None and (event := event.parent) is not None:
        frames.append(event.name)
    for outer, frame in enumerate(frames):
        if frame.startswith("Optimizer.step#"):
            return f"update: {frame.removeprefix('Optimizer.step#').partition('.')[0]}"
        if frame.startswith("autograd::engine::evaluate_function: "):
            node = frame.rpartition(" ")[2]
            inside = node in frames[:outer]
            return f"backward: {node.rstrip('0123456789')}" if inside else "backward: gradient sum"
    operator = next((frame for frame in frames if frame.startswith("aten::")), "outside of an operator")
    return f"forward: {operator.replace('::', '.')}"


@dataclass(frozen=True)
class HeapPass:
    """The heap during one step, by memray."""

    peak_bytes: int
    """Above the start."""
    allocations: int
    allocated_bytes: int
    tensors_peak_bytes: int
    """The same sum over `posix_memalign` alone, which is what torch's CPU allocator calls."""


def heap_pass(one_step: Callable[[], None]) -> HeapPass | None:
    """Count every allocation of one step; None where memray does not exist."""
    try:
        import memray
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "allocations.bin"
        with memray.Tracker(path):
            one_step()
        return _count(memray, path)


def _count(memray: Any, path: Path) -> HeapPass:
    kinds = memray.AllocatorType
    maps = {int(kinds.MMAP), int(kinds.MUNMAP)}
    heap, tensors, count, total = _Live(), _Live(), 0, 0
    for record in memray.FileReader(path).get_allocation_records():
        if record.allocator in maps:
            continue
        if record.allocator == kinds.FREE:
            heap.free(record.address)
            tensors.free(record.address)
            continue
        count, total = count + 1, total + record.size
        heap.take(record.address, record.size)
        if record.allocator == kinds.POSIX_MEMALIGN:
            tensors.take(record.address, record.size)
    return HeapPass(heap.peak, count, total, tensors.peak)


class _Live:
    """A running sum by address; what was there before the start is not known, so its freeing does not count."""

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


def _cuda_pass(device: torch.device, one_step: Callable[[], None]) -> MemoryPass:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)["allocation.all.allocated"]
    one_step()
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return MemoryPass(
        tensors_peak_bytes=torch.cuda.max_memory_allocated(device),
        reserved_peak_bytes=torch.cuda.max_memory_reserved(device),
        device_peak_bytes=total - free,
        allocations=torch.cuda.memory_stats(device)["allocation.all.allocated"] - before,
    )
