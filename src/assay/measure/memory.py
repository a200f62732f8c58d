"""The memory pass: what one optimizer step asks for, counted at the allocator and never polled.

The tensors' peak on a CPU is the most bytes requested from torch's allocator during one step, above its start, plus the
bytes of tensors alive before. Two instruments see it: torch's own allocator events, and memray's record of
`posix_memalign`, which is what that allocator calls. They agree to the byte where kernels ask for no aligned scratch of
their own. The first is used, because it also names the operator; memray gives the heap as a whole. Neither cares
whether memory was touched or for how long it was held, and both leave memory-mapped files out. A tensor from before the
step that the step frees leaves torch's count, and stays in memray's, which knows no size of it.

What a library requests from the same allocator for itself is a figure of its own and not in the tensors' peak, which
is therefore the same on every processor (`measure.tensor_peak`).

On CUDA the caching allocator's counters give the peak, and the profiler its instant. What captured graphs keep for
their replays no tensor has, so those counters leave it out; it is added.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.measure.heap import heap_of
from assay.measure.storages import distinct_bytes
from assay.measure.tensor_peak import tensor_peak


@dataclass(frozen=True)
class MemoryPass:
    """Figures of one optimizer step after the first. None: this device or machine does not count it."""

    tensors_peak_bytes: int
    tensors_peak_instant: str | None = None
    """Phase and operator during which the peak was first reached."""
    library_scratch_bytes: int | None = None
    """Most that libraries requested from torch's allocator for themselves at once; not counted apart on CUDA."""
    allocator_peak_bytes: int | None = None
    """Most of tensors and library scratch together; not counted apart on CUDA."""
    reserved_peak_bytes: int | None = None
    """Most that torch's caching allocator held; a CPU has none."""
    device_peak_bytes: int | None = None
    """Taken on the device by everyone at the step's end: the caching allocator gives nothing back in between."""
    heap_peak_bytes: int | None = None
    """The heap's growth at its highest, plus the tensors alive before."""
    allocations: int | None = None
    """Heap allocations, memory maps left out."""
    allocated_bytes: int | None = None
    """Bytes that those asked for, summed."""


def memory_pass(
    device: torch.device, one_step: Callable[[], None], live_bytes: int, repeats: int = 1, idle_bytes: int = 0
) -> MemoryPass:
    """Measure one step. `one_step` is called once per instrument; `live_bytes` are those of tensors before it, and
    `idle_bytes` those that graphs keep and no tensor has.

    It must not be the first step, since an optimizer makes its state in that. Where other threads hold tensors a little
    longer than the step does, as gloo's do, the least of several `repeats` is what the step itself holds.
    """
    with _no_collection():
        if device.type == "cuda":
            return _cuda_pass(device, one_step, idle_bytes)
        peak = min((tensor_peak(one_step, "cpu") for _ in range(repeats)), key=lambda one: one.above_start_bytes)
        gc.collect()
        heap = heap_of(one_step)
    return MemoryPass(
        tensors_peak_bytes=live_bytes + peak.above_start_bytes,
        tensors_peak_instant=peak.instant,
        library_scratch_bytes=peak.library_scratch_bytes,
        allocator_peak_bytes=live_bytes + peak.with_scratch_bytes,
        heap_peak_bytes=None if heap is None else live_bytes + heap.above_start_bytes,
        allocations=None if heap is None else heap.allocations,
        allocated_bytes=None if heap is None else heap.allocated_bytes,
    )


def live_tensor_bytes(device: torch.device) -> int:
    """Bytes of the distinct storages of torch's allocator that tensors known to Python, and their gradients, hold now.

    Memory that torch did not allocate (a numpy array, a memory-mapped file) is left out.
    """
    gc.collect()
    return distinct_bytes(
        tensor
        for tensor in _known_tensors()
        if tensor.device.type == device.type and tensor.layout == torch.strided and _is_torchs(tensor)
    )


def _known_tensors() -> Iterator[torch.Tensor]:
    for one in gc.get_objects():
        if not issubclass(type(one), torch.Tensor):
            continue
        yield one
        if one.is_leaf and one.grad is not None:  # a gradient that Python never asked for has no object of its own
            yield one.grad


def _is_torchs(tensor: torch.Tensor) -> bool:
    """Whether torch can resize the storage: it cannot one that it was only lent.

    A compiler's stand-ins say that they are on a device, and their storage is nowhere. A tensor made of others has no
    storage of its own, whatever it says; its parts are known themselves, and are stand-ins where it is one.
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
    """Collect garbage now and not inside: when the collector runs must not decide a peak."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _cuda_pass(device: torch.device, one_step: Callable[[], None], idle_bytes: int) -> MemoryPass:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    one_step()
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    peak, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return MemoryPass(
        tensors_peak_bytes=peak + idle_bytes,
        tensors_peak_instant=tensor_peak(one_step, "cuda").instant,
        reserved_peak_bytes=reserved,
        device_peak_bytes=total - free,
    )
