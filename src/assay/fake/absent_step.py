"""The peak of a training step that torch's CUDA build runs on an absent GPU, in a process with its library.

Two steps come first. Then workspaces and cache are cleared and the peaks are reset, as in the measurements on a GPU
(`benchmarks/data/README.md`). A further step under a ledger of storages divides the peak of its tensors into parts.
Memory ends where that of the device ends, and the answer then says so.
"""

import gc
from collections.abc import Callable
from typing import Any

import torch

from assay.absent.gpus import absent_device
from assay.config.run import ResolvedRun
from assay.fake.cuda import CudaLedger
from assay.fake.first_steps import FIRST, after_first_steps
from assay.fake.peak import GpuPeak
from assay.fake.traced_step import counted_peak, found_step
from assay.instruments import operations
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import owners_of
from assay.step.program import Step
from assay.training.queued_step import take

GPU = torch.device("cuda")


def run_peak(run: ResolvedRun, device: str) -> GpuPeak:
    """Run steps of a run's program. Raises `UsageError` if the program cannot be built."""

    def found() -> GpuPeak:
        step = after_first_steps(run, GPU)
        return _peak(step, lambda: take(step, FIRST), device, run.training.batch_size)

    return _within_memory(found, device, run.training.batch_size)


def step_peak(make: Callable[[], Callable[[], Any]], device: str, batch_size: int | None = None) -> GpuPeak:
    """Run steps of a user's own; `make` returns the function that trains once. Raises `UsageError` if none steps."""

    def found() -> GpuPeak:
        call = make()
        return _peak(found_step(call), call, device, batch_size)

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


def _peak(step: Step, call: Callable[[], Any], device: str, batch_size: int | None) -> GpuPeak:
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    figures = _allocator_peaks()
    state = operations.tensors_in(list(step.optimizer.state.values()))
    with CudaLedger(absent_device(device)) as ledger:
        ledger.begin(step.parts, owners_of(step.parts, state), live_tensors(GPU))
        call()
    return counted_peak(ledger, step, device, batch_size, figures, ran=True)


def _allocator_peaks() -> dict[str, int]:
    """Return the peaks of torch's allocator since they were reset."""
    counted = torch.cuda.memory_stats()
    names = ("requested", "allocated", "reserved")
    return {f"{name}_peak_bytes": counted[f"{name}_bytes.all.peak"] for name in names}
