"""The peak of a training step that torch's CUDA build runs on an absent GPU, in a process with its library.

Two steps come first. Then workspaces and cache are cleared and the peaks are reset, as in the measurements on a GPU
(`benchmarks/data/README.md`). A further step under a ledger of storages divides the peak of its tensors into parts.
"""

import gc
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.absent.devices import absent_device
from assay.config.run import ResolvedRun
from assay.data import open_prepared
from assay.data.random_tokens import write_random
from assay.fake.cuda import CudaLedger
from assay.fake.peak import GpuPeak
from assay.fake.step import FIRST, TOKENS, counted_peak, found_step, real_batches
from assay.instruments import operations
from assay.instruments.memory.ledger import owners_of
from assay.instruments.memory.memory_pass import live_tensors
from assay.model.own.part import batches_of
from assay.optimizations import optimizations_of
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.queued_step import take

GPU = torch.device("cuda")


def run_peak(run: ResolvedRun, device: str) -> GpuPeak:
    """Run steps of a run's program. Raises `UsageError` if the program cannot be built."""
    assert run.model.vocab_size is not None
    with tempfile.TemporaryDirectory(prefix="assay-absent-") as folder:
        program = baseline(run, open_prepared(write_random(Path(folder), run.model.vocab_size, TOKENS)), GPU)
        if batches_of(program.parts) is not None:
            program = replace(program, batches=real_batches(run))
        for one in optimizations_of(run):
            program = one.apply(program, run)
        step = build(program)
        for index in range(FIRST):
            take(step, index)
        return _peak(step, lambda: take(step, FIRST), device, run.training.batch_size)


def step_peak(make: Callable[[], Callable[[], Any]], device: str, batch_size: int | None = None) -> GpuPeak:
    """Run steps of a user's own; `make` returns the function that trains once. Raises `UsageError` if none steps."""
    call = make()
    step = found_step(call)
    return _peak(step, call, device, batch_size)


def _peak(step: Step, call: Callable[[], Any], device: str, batch_size: int | None) -> GpuPeak:
    figures = _allocator_peaks(call)
    state = operations.tensors_in(list(step.optimizer.state.values()))
    with CudaLedger(absent_device(device)) as ledger:
        ledger.begin(step.parts, owners_of(step.parts, state), live_tensors(GPU))
        call()
    return counted_peak(ledger, step, device, batch_size, figures, ran=True)


def _allocator_peaks(call: Callable[[], Any]) -> dict[str, int]:
    """Return the peaks of torch's allocator in one step, with workspaces and cache as in a fresh process."""
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    counted = torch.cuda.memory_stats()
    names = ("requested", "allocated", "reserved")
    return {f"{name}_peak_bytes": counted[f"{name}_bytes.all.peak"] for name in names}
