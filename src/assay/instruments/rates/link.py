"""Latency and bandwidth of gloo's loopback between two processes of this machine.

An all-reduce of two ranks sends its payload once, in two steps. So a few bytes take 2α and a large payload 2α + B/β
(Hockney 1994; `cost.collectives`). Both are the fastest of several repetitions on a machine that should be idle: a best
case, like the other rates. Contention of more than two ranks for the shared memory is not measured.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from assay.files import scratch
from assay.hardware.links import Link

_RANKS, _STEPS = 2, 2
_SMALL, _LARGE = 8, 2**24
_REPETITIONS = {_SMALL: 200, _LARGE: 10}


def measure_link() -> Link:
    """Measure the link with two processes of one thread each.

    Raises torch's `ProcessRaisedException` if a process fails, for instance because they cannot connect.
    """
    with scratch("link") as folder:
        spawn(_rank, (str(folder),), nprocs=_RANKS)  # type: ignore[no-untyped-call]
        small, large = map(float, (folder / "seconds").read_text().split())
    return Link(
        name="gloo over loopback",
        latency_seconds=small / _STEPS,
        bandwidth_bytes=_LARGE / max(large - small, large / 2),
        source=f"measured here with torch {torch.__version__}",
    )


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=_RANKS)
    seconds = [_fastest(nbytes, times) for nbytes, times in _REPETITIONS.items()]
    if rank == 0:
        Path(folder, "seconds").write_text(" ".join(map(repr, seconds)))
    dist.destroy_process_group()


def _fastest(nbytes: int, times: int) -> float:
    payload, fastest = torch.zeros(nbytes, dtype=torch.uint8), float("inf")
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(payload)
        fastest = min(fastest, time.perf_counter() - begun)
    return fastest
