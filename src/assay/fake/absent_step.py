"""The peak of a training step that torch's CUDA build runs on an absent GPU, in a process with its library.

Two steps come first. Then workspaces and cache are cleared and the peaks are reset, as in the measurements on a GPU
(`benchmarks/data/README.md`). A further step under a ledger of storages divides the peak of its tensors into parts.
Memory ends where that of the device ends, and the answer then says so.
"""

import gc
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from assay.absent.gpus import absent_device
from assay.config.run import ResolvedRun
from assay.fake.cuda import CudaLedger
from assay.fake.first_steps import FIRST, after_first_steps
from assay.fake.followed_step import follow_step
from assay.fake.peak import GpuPeak
from assay.fake.traced_step import counted_peak
from assay.instruments import operations
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import owners_of
from assay.step.program import Step
from assay.training.queued_step import take

GPU = torch.device("cuda")


def run_peak(run: ResolvedRun, device: str) -> GpuPeak:
    """Run steps of a run's program. Raises `UsageError` if the program cannot be built."""

    def found() -> GpuPeak:
        step, counted = after_first_steps(run, GPU), _Counted(device, run.training.batch_size)
        for begin in (counted.by_allocator, counted.by_part):
            begin(step)
            take(step, FIRST)
        return counted.peak(step)

    return _within_memory(found, device, run.training.batch_size)


def step_peak(make: Callable[[], Callable[[], Any]], device: str, batch_size: int | None = None) -> GpuPeak:
    """Run steps of a user's own; `make` returns the function that trains once. Raises `UsageError` if none steps."""

    def found() -> GpuPeak:
        counted = _Counted(device, batch_size)
        return follow_step(make(), counted.by_allocator, counted.by_part, end=counted.peak)

    return _within_memory(found, device, batch_size)


def _within_memory(find: Callable[[], GpuPeak], device: str, batch_size: int | None) -> GpuPeak:
    """Return the peak that is found, or the figures until the memory of the device was exhausted."""
    try:
        return find()
    except torch.OutOfMemoryError as error:
        said = ". ".join(str(error).split(". ")[:2])  # "CUDA out of memory. Tried to allocate 2.00 GiB"
    figures = _allocator_peaks()
    return GpuPeak(
        device=device,
        torch=str(torch.__version__),
        ran=True,
        parameters=0,
        peak_bytes=figures["requested_peak_bytes"],
        instant="memory ended",
        parts={},
        exhausted=said,
        batch_size=batch_size,
        **figures,
    )


class _Counted:
    """Peaks of two steps: what torch's allocator takes in the first, and the parts of its tensors in the second."""

    def __init__(self, device: str, batch_size: int | None) -> None:
        self._device, self._batch_size = device, batch_size
        self._ledger = CudaLedger(absent_device(device))
        self._entered = ExitStack()
        self._allocator: dict[str, int] = {}

    def by_allocator(self, _step: Step) -> None:
        """Begin the first step, with nothing left of those before it."""
        torch.cuda.synchronize()
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def by_part(self, step: Step) -> None:
        """End the first step, and begin the second."""
        torch.cuda.synchronize()
        self._allocator = _allocator_peaks()
        state = operations.tensors_in(list(step.optimizer.state.values()))
        self._entered.enter_context(self._ledger)
        self._ledger.begin(step.parts, owners_of(step.parts, state), live_tensors(GPU))

    def peak(self, step: Step) -> GpuPeak:
        """End the second step, and return the peaks."""
        self._entered.close()
        return counted_peak(self._ledger, step, self._device, self._batch_size, self._allocator, ran=True)


def _allocator_peaks() -> dict[str, int]:
    """Return the peaks of torch's allocator since they were reset."""
    counted = torch.cuda.memory_stats()
    names = ("requested", "allocated", "reserved")
    return {f"{name}_peak_bytes": counted[f"{name}_bytes.all.peak"] for name in names}
