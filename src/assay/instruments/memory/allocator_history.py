"""Blocks of a CUDA step, from the history of torch's caching allocator: those alive at the peak, and what made them.

The history has up to three events for a block: it is allocated, its free is requested, and the free is completed. A
block that another stream has used waits between the last two. `torch.cuda.memory_stats` counts it as requested until
the end, and as allocated until its free is requested (`c10/cuda/CUDACachingAllocator.cpp`, `free` and `free_block`).
How many blocks wait depends on time, so they are counted apart, and no figure of tensors has them.

cuBLAS keeps a workspace for each thread and stream, from the same allocator. All are cleared before the step, which
makes anew those that it needs. Clearing them again shows which blocks they are, so their bytes do not depend on what
ran before. A replayed graph makes none: those of its capture are in its own pool, and count when they are cleared.

An allocation has the stack of Python that asked for it. The stack is empty in autograd's thread, which runs backward,
except in backward functions that are written in Python.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.records.prediction import PeakBlock

MOST_EVENTS = 1_000_000
"""Allocations and frees that CUDA's history keeps; a step of a small model has some thousands."""
BEFORE, BACKWARD = "before the step", "backward"
"""Makers of a block that is older than the step, and of one that autograd's thread asked for."""
_TORCH = str(Path(torch.__file__).parent)

Events = Sequence[Mapping[str, Any]]
"""Entries of `device_traces` of torch's snapshot."""


@dataclass(frozen=True)
class AllocatorPeak:
    """Blocks that a step asked of the caching allocator, in sums and one by one."""

    tensors_bytes: int
    """Highest sum of the blocks of tensors."""
    held_bytes: int
    """Highest sum of the blocks of tensors and workspaces."""
    waiting_bytes: int
    """Highest sum of the blocks that wait for another stream."""
    requested_bytes: int
    """Highest sum of all three."""
    blocks: tuple[PeakBlock, ...] = ()
    """Blocks of tensors that are alive at their peak, the largest sums first; empty if events were lost."""
    workspaces: tuple[PeakBlock, ...] = ()
    """Workspaces that the step made; empty if events were lost."""


class WatchedStep(NamedTuple):
    """A step whose allocations were watched."""

    peak: AllocatorPeak
    workspace_bytes: int
    """Bytes of the workspaces that the step made."""
    graph_workspace_bytes: int
    """Bytes of the workspaces that captured graphs had in their pools."""
    reserved_bytes: int
    """Most bytes that the allocator took from the device."""


def watch_step(device: torch.device, one_step: Callable[[], None]) -> WatchedStep:
    """Do one step under the allocator's history, with workspaces and cache as in a fresh process."""
    torch.cuda.synchronize(device)
    gc.collect()
    before = alive(device, in_pools=True)
    _cleared_workspaces(device)
    of_graphs = sum(before.values()) - sum(alive(device, in_pools=True).values())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    older = alive(device)
    events = _events_of(device, one_step)
    counters = torch.cuda.memory_stats(device)
    made = _cleared_workspaces(device)
    peak, workspace_bytes = replay_history(older, events, made), sum(made.values())
    if peak.requested_bytes != counters["requested_bytes.all.peak"]:
        peak = _by_counters(counters, workspace_bytes)
    return WatchedStep(peak, workspace_bytes, of_graphs, counters["reserved_bytes.all.peak"])


def _events_of(device: torch.device, one_step: Callable[[], None]) -> Events:
    history = torch.cuda.memory._record_memory_history
    history(enabled="all", context="alloc", stacks="python", max_entries=MOST_EVENTS, clear_history=True)
    try:
        one_step()
        torch.cuda.synchronize(device)
        found: Events = torch.cuda.memory._snapshot()["device_traces"][_index(device)]
    finally:
        history(enabled=None)
    return found


def _by_counters(counters: Mapping[str, int], workspace_bytes: int) -> AllocatorPeak:
    """Return the sums of a step of which the history has lost events. Each allocated block is rounded up."""
    held, requested = (counters[f"{kind}_bytes.all.peak"] for kind in ("allocated", "requested"))
    return AllocatorPeak(held - workspace_bytes, held, max(0, requested - held), requested)


def replay_history(older: Mapping[int, int], events: Events, workspaces: Iterable[int]) -> AllocatorPeak:
    """Replay a history. `older` has the bytes of the blocks that were alive before it, by address.

    `workspaces` are addresses. The last block that was allocated at each of them is a workspace.
    """
    last = {event["addr"]: place for place, event in enumerate(events) if event["action"] == "alloc"}
    kept = {last[address] for address in workspaces if address in last}
    sums = list(_sums(older, events, kept))
    highest = max(sums, key=lambda one: one.tensors)
    return AllocatorPeak(
        tensors_bytes=highest.tensors,
        held_bytes=max(one.tensors + one.workspaces for one in sums),
        waiting_bytes=max(one.waiting for one in sums),
        requested_bytes=max(one.tensors + one.workspaces + one.waiting for one in sums),
        blocks=_counted(_alive_after(older, events[: highest.events], kept)),
        workspaces=_counted((events[place]["size"], _workspace(events[place])) for place in sorted(kept)),
    )


class _Sums(NamedTuple):
    """Bytes of blocks after some events, by their kind."""

    events: int
    tensors: int
    workspaces: int
    waiting: int


def _sums(older: Mapping[int, int], events: Events, workspaces: set[int]) -> Iterator[_Sums]:
    """Yield the sums before the first event and after each allocation, the only event that adds to all of them.

    A block whose free is completed at once does not wait: no allocation is between its last two events.
    """
    tensors, kept, waiting = sum(older.values()), 0, 0
    yield _Sums(0, tensors, kept, waiting)
    for place, event in enumerate(events):
        nbytes = event["size"]
        if event["action"] == "alloc":
            tensors, kept = (tensors, kept + nbytes) if place in workspaces else (tensors + nbytes, kept)
            yield _Sums(place + 1, tensors, kept, waiting)
        elif event["action"] == "free_requested":  # workspaces are those that the step does not free
            tensors, waiting = tensors - nbytes, waiting + nbytes
        elif event["action"] == "free_completed":
            waiting -= nbytes


def _alive_after(older: Mapping[int, int], events: Events, workspaces: set[int]) -> Iterable[tuple[int, str]]:
    """Return bytes and maker of each block of a tensor that is alive after the events."""
    found = {address: (nbytes, BEFORE) for address, nbytes in older.items()}
    for place, event in enumerate(events):
        if event["action"] == "alloc" and place not in workspaces:
            found[event["addr"]] = event["size"], _maker(event.get("frames", ()))
        elif event["action"] == "free_requested":
            found.pop(event["addr"], None)
    return found.values()


def _counted(blocks: Iterable[tuple[int, str]]) -> tuple[PeakBlock, ...]:
    found = (PeakBlock(nbytes=nbytes, count=count, made=made) for (nbytes, made), count in Counter(blocks).items())
    return tuple(sorted(found, key=lambda one: -one.nbytes * one.count))


def _maker(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the innermost line that is not torch's, or that it was autograd's thread."""
    lines = (one for one in frames if not one["filename"].startswith(_TORCH))
    return next((f"{Path(one['filename']).name}:{one['line']}" for one in lines), BACKWARD)


def _workspace(event: Mapping[str, Any]) -> str:
    """Name a workspace by its thread: only the caller's has `watch_step` on its stack."""
    callers = any(one["filename"] == __file__ for one in event.get("frames", ()))
    return f"cuBLAS's workspace of {'the caller' if callers else 'autograd'}'s thread"


def alive(device: torch.device, *, in_pools: bool = False) -> dict[int, int]:
    """Return the requested bytes of each block in use by address, or only of those in pools of captured graphs."""
    blocks = (
        one
        for segment in torch.cuda.memory._snapshot()["segments"]
        if segment["device"] == _index(device) and (any(segment["segment_pool_id"]) or not in_pools)
        for one in segment["blocks"]
    )
    return {one["address"]: one["requested_size"] for one in blocks if one["state"].startswith("active")}


def _cleared_workspaces(device: torch.device) -> dict[int, int]:
    """Free the workspaces of cuBLAS, which the next products make anew, and return their bytes by address."""
    torch.cuda.synchronize(device)
    before = alive(device)
    torch._C._cuda_clearCublasWorkspaces()
    left = alive(device)
    return {address: nbytes for address, nbytes in before.items() if address not in left}


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
