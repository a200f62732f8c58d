"""Time of one step in which a collective is in communication on this rank, from the profiler's spans of the backend.

gloo's span of a collective begins at its call and ends at its end, so it includes the wait for late ranks. NCCL's spans
are those of its kernels. Spans that overlap each other count once. Spans that overlap computation count in full. On a
CPU the two share the cores; on a GPU only the step's time shows how much is hidden. The profiled step is a few percent
slower than a timed one, so the share is of its own time.

Spans are given by the host's monotonic clock, which its processes share, so that spans of several ranks can be
compared. Marks at instants read on both clocks relate the profiler's clock to it; the least difference is the best.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, record_function

_BACKENDS = ("gloo:", "ncclDevKernel")
_MICRO = 1e-6
_MARK, _MARKS = "assay: the clock", 8


@dataclass(frozen=True)
class Travel:
    """Seconds of one step, and those with a collective in communication."""

    step_seconds: float
    under_way_seconds: float
    spans: tuple[tuple[float, float], ...] = ()
    """(begin, end) of each span by the host's clock, in the order of begins."""

    @property
    def share(self) -> float:
        """Share of the step with a collective in communication."""
        return self.under_way_seconds / self.step_seconds


def travel(device: torch.device, one_step: Callable[[], None]) -> Travel:
    """Profile one step; every rank must run it."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiled:
        marks = [_marked() for _ in range(_MARKS)]
        began = time.perf_counter()
        one_step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
    seen = [
        (event.name, event.time_range.start * _MICRO, event.time_range.end * _MICRO)
        for event in profiled.events() or ()
        if event.name.startswith((*_BACKENDS, _MARK))
    ]
    marked = sorted(start for name, start, _ in seen if name == _MARK)
    ahead = min((told - start for told, start in zip(marks, marked, strict=True)), default=0.0)
    spans = sorted((start + ahead, end + ahead) for name, start, end in seen if name != _MARK)
    return Travel(seconds, min(seconds, union_length(spans)), tuple(spans))


def _marked() -> float:
    with record_function(_MARK):
        return time.perf_counter()


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (begin, end) spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
