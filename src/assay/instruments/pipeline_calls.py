"""Calls of a pipeline's stages by the engine: the idle time of its ranks, and the order in which a rank computes.

torch's schedules wait for a stage's input before they call its forward or backward. So a rank computes inside such a
call, and idles between two of them. A pipeline's step lasts from the first call on any of its ranks to the last return
on any. The part of it in which a rank does not compute is the rank's idle share. It contains the bubble and, if stages
are unequal, their waits for each other. On an accelerator, events on its stream mark the calls, after the waits.

Caveat: a call that shares its core with another process, or waits inside for a collective of another axis, is busy by
the wall clock. So the calling thread's processor time is recorded too. A share is comparable with a formula only if
processor time is at least `OWN_CORE` of the spans on every rank. The ranks of a pipeline must share one clock, so they
must be on one host.
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from assay.records.ranks import Idle
from assay.step.device_queue import mark, seconds_between
from assay.step.program import Step

OWN_CORE = 0.95
"""Least ratio of processor time to wall time of busy spans at which a rank had a core of its own."""
_KINDS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
"""The engine's methods that compute, with the kinds of their calls."""


@dataclass(frozen=True)
class Busy:
    """Forwards and backwards of one rank in one step, by the clock of its host."""

    host: str
    begin_seconds: float
    end_seconds: float
    busy_seconds: float
    processor_seconds: float | None
    """Processor time of the calling thread; None on an accelerator, which a rank does not share."""


@dataclass(frozen=True)
class _Mark:
    """An instant on the host, and on the device's stream if there is one."""

    wall: float
    processor: float
    event: torch.cuda.Event | None


def busy(device: torch.device, one_step: Callable[[], None]) -> Busy | None:
    """Run one step and return its busy spans in sum; None if no pipeline stage ran."""
    start = _mark(device)
    if start.event is not None:
        start.event.synchronize()
    origin = time.perf_counter()
    with _watched(device) as calls:
        one_step()
    if not calls:
        return None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        spans = [(origin + _since(start, begin), origin + _since(start, end)) for begin, end in calls]
    else:
        spans = [(begin.wall, end.wall) for begin, end in calls]
    processor = None if device.type == "cuda" else sum(end.processor - begin.processor for begin, end in calls)
    return Busy(platform.node(), spans[0][0], spans[-1][1], sum(end - begin for begin, end in spans), processor)


def idle(steps: Sequence[Sequence[Busy | None]], line: Sequence[int]) -> dict[int, Idle]:
    """Idle shares of the ranks in `line`, which form one pipeline, from every rank's `Busy` of each step.

    Empty if the ranks are on several hosts, whose clocks differ, or if a `Busy` is missing.
    """
    found: dict[int, list[Busy]] = {rank: [one for step in steps if (one := step[rank])] for rank in line}
    everyone = [one for ones in found.values() for one in ones]
    if len({one.host for one in everyone}) != 1 or len(everyone) != len(steps) * len(line):
        return {}
    lasted = [_makespan([found[rank][index] for rank in line]) for index in range(len(steps))]
    processor = {rank: _processor_share(ones) for rank, ones in found.items()}
    own = all(share is None or share >= OWN_CORE for share in processor.values())
    shares = {
        rank: tuple(1 - one.busy_seconds / span for one, span in zip(ones, lasted, strict=True))
        for rank, ones in found.items()
    }
    return {
        rank: Idle(share=median(each), shares=each, processor_share=processor[rank], comparable=own)
        for rank, each in shares.items()
    }


def _makespan(line: Sequence[Busy]) -> float:
    return max(one.end_seconds for one in line) - min(one.begin_seconds for one in line)


def _processor_share(steps: Sequence[Busy]) -> float | None:
    spent = [one.processor_seconds for one in steps if one.processor_seconds is not None]
    return sum(spent) / sum(one.busy_seconds for one in steps) if spent else None


@contextmanager
def _watched(device: torch.device) -> Iterator[list[tuple[_Mark, _Mark]]]:
    """Context that collects the marks before and after every call that computes, in order."""
    calls: list[tuple[_Mark, _Mark]] = []

    def timing(compute: Callable[..., Any], _: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = _mark(device)
            result = compute(*args, **kwargs)
            calls.append((begin, _mark(device)))
            return result

        return call

    with _calls_through(timing):
        yield calls


def _mark(device: torch.device) -> _Mark:
    event = mark(device)
    return _Mark(time.perf_counter(), time.thread_time(), event)


def _since(start: _Mark, later: _Mark) -> float:
    seconds = seconds_between(start.event, later.event)
    if seconds is None:
        raise RuntimeError("times on a device's stream need events")
    return seconds


@contextmanager
def record_stages(step: Step, ran: list[str]) -> Iterator[None]:
    """Context that appends to `ran` each call of a stage on this rank: its kind, stage and micro-batch, as in `F0.1`.

    F is a forward and B a whole backward; I and W are its halves, the gradients of inputs and of weights. Without a
    pipeline nothing is recorded.
    """
    mesh = step.program.parallel.mesh
    if mesh is None or mesh.size((mesh.mesh_dim_names or ()).index("pp")) == 1:
        yield
        return

    def noting(run: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
            half = kind == "B" and not kwargs.get("full_backward", True)
            ran.append(f"{'I' if half else kind}{stage.stage_index}.{micro_batch}")
            return run(stage, micro_batch, *args, **kwargs)

        return call

    with _calls_through(noting):
        yield


@contextmanager
def _calls_through(wrap: Callable[[Callable[..., Any], str], Callable[..., Any]]) -> Iterator[None]:
    """Context in which each call of a stage goes through `wrap`, which gets the engine's method and its kind."""
    from torch.distributed.pipelining import PipelineStage

    before = {name: getattr(PipelineStage, name) for name in _KINDS}
    for name, compute in before.items():
        setattr(PipelineStage, name, wrap(compute, _KINDS[name]))
    try:
        yield
    finally:
        for name, compute in before.items():
            setattr(PipelineStage, name, compute)
