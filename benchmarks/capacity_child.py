"""Train three steps in a process that may take only so much memory for tensors: the child of `benchmarks/capacity.py`.

    python benchmarks/capacity_child.py < TASK

The task is one JSON object: overrides of `demo`, a stack, and a budget in bytes. The answer is one JSON object on
standard output. Before it is limited, the process trains the same configuration for two steps and frees it. Libraries
have then been loaded, and have generated the code and the buffers that they keep: with 16 bits, 24 MB for one shape
(oneDNN). This is the started process. Its size is its private writable memory (`VmData`) without the free blocks of
malloc's heap. This size, plus the budget, becomes the limit of the kernel (`RLIMIT_DATA`). Then the configuration is
built anew and trained for three steps.

malloc maps every block of 64 KiB or more by itself, and unmaps it when it is freed. There is one thread and one arena.
"""

import ctypes
import json
import resource
import sys
from pathlib import Path
from typing import Any

from assay.config import Run
from assay.config.loading import load

REHEARSED, STEPS = 2, 3


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "top")
    ]


def private_bytes() -> int:
    """Private writable memory of this process, which the limit counts, without free blocks of the heap."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    heap = ctypes.CDLL(None).mallinfo2
    heap.restype = _Heap
    return int(fields["VmData"].split()[0]) * 1024 - int(heap().free)


def train(run: Run, steps: int) -> None:
    """Build a run on random tokens, and train it."""
    from assay.training.loop import train_step
    from random_peaks import built

    step = built(run)
    for index in range(steps):
        train_step(step, index)


def limited(run: Run, budget: int) -> dict[str, Any]:
    """Train under the limit; return the ending, and the size of the started process."""
    import torch

    from assay.instruments.memory.resident_memory import return_freed_memory, trim
    from assay.training.stops import is_out_of_memory
    from random_peaks import forget_tables

    torch.set_num_threads(1)
    return_freed_memory()
    train(run, REHEARSED)
    forget_tables()
    trim()
    started = private_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (started + budget, resource.RLIM_INFINITY))
    try:
        train(run, STEPS)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return {"ending": "out of memory", "started_bytes": started}
    return {"ending": "done", "started_bytes": started}


def main() -> None:
    """Read the task, and answer."""
    from assay.optimizations import resolve_run

    task = json.load(sys.stdin)
    run = resolve_run(load("demo", task["overrides"], task["stack"]))
    print(json.dumps(limited(run, task["budget"])))


if __name__ == "__main__":
    main()
