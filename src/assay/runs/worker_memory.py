"""Tensors in the child: counted per phase where the device counts them, and in the memory pass at the run's end."""

from collections.abc import Callable
from itertools import count

import torch

from assay.measure.memory import live_tensor_bytes, memory_pass
from assay.runs.record import Memory
from assay.runs.worker_phases import Phases
from assay.training.endings import Unread, is_out_of_memory
from assay.training.loop import Loop

_REPEATS_OVER_RANKS = 5


def count_tensors(phases: Phases, device: torch.device) -> None:
    """Have a CUDA device's own counter read at the end of every phase; a CPU's allocator has none."""
    if device.type != "cuda":
        return

    def peak() -> int:
        highest = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return highest

    phases.tensors_peak = peak


def measure_memory(loop: Loop, notes: list[str], tell: Callable[[int, int], None]) -> Memory:
    """One more step under the instruments, thrown away. Out of memory or data there is a note: the run itself is done.

    Over ranks a step goes before it: an evaluation may leave gathered weights, which only the next backward frees. So
    does one under a loss scale, whose update is made: a skipped one is no whole step, and leaves no optimizer's state.
    `tell` hears how many of the steps are done.
    """
    device, graphs = loop.step.program.device, loop.step.program.graphs
    try:
        if loop.ranks.world > 1 or loop.step.program.loss_scale.skips:
            loop.discard_until_updated()
        repeats = _REPEATS_OVER_RANKS if loop.ranks.world > 1 else 1
        idle = 0 if graphs is None else graphs.idle_bytes()
        done = count(1)

        def one_step() -> None:
            loop.discard_step()
            tell(next(done), repeats + 1)

        measured = memory_pass(device, one_step, live_tensor_bytes(device), repeats, idle)
    except Unread as stop:
        notes.append(f"the memory pass had no step to measure, so its figures are missing: {stop}")
        return Memory()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        notes.append("the memory pass itself ran out of memory, so its figures are missing")
        return Memory()
    return Memory.model_validate(vars(measured))
