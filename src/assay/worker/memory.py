"""Memory of tensors in the child: the peak of each phase on CUDA, and the memory pass at the end of the run."""

from collections.abc import Callable
from itertools import count

import torch

from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass, steps_of_the_pass
from assay.records.memory import Memory
from assay.step.graphs import StepGraphs
from assay.training.loop import Loop
from assay.training.stops import Unread, is_out_of_memory
from assay.worker.phases import Phases
from assay.worker.result import Findings


def count_tensors(phases: Phases, device: torch.device) -> None:
    """Read a CUDA device's peak counter at the end of every phase; a CPU's allocator has no such counter."""
    if device.type != "cuda":
        return

    def peak() -> int:
        highest = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return highest

    phases.tensors_peak = peak


def measure_memory(loop: Loop, findings: Findings, tell: Callable[[int, int], None], *, heap: bool) -> Memory:
    """Measure one more step, which is discarded. If memory or data run out, add a note, because the run itself is done.

    The heap is counted if `heap` says so.

    A step precedes it on several ranks, because an evaluation may leave gathered weights, which only the next backward
    frees. With a loss scale, steps precede it until one makes its update: a skipped update leaves no optimizer state.
    `tell` receives the number of measured steps so far, and their total.
    """
    device, graphs, ranks = loop.step.program.device, loop.step.program.witness(StepGraphs), loop.ranks.world
    try:
        if ranks > 1 or loop.step.program.precision.loss_scale.skips:
            loop.discard_until_updated()
        idle = 0 if graphs is None else graphs.idle_bytes()
        done, total = count(1), steps_of_the_pass(device, ranks, heap=heap)

        def one_step() -> None:
            loop.discard_step()
            tell(next(done), total)

        measured = memory_pass(device, one_step, live_tensor_bytes(device), ranks, idle, heap=heap)
    except Unread as stop:
        findings.notes.append(f"the memory pass had no step to measure, so its figures are missing: {stop}")
        return Memory()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        findings.notes.append("the memory pass itself ran out of memory, so its figures are missing")
        return Memory()
    return Memory.model_validate(vars(measured))
