"""Bytes that torch's caching allocator reserves for a step, as an interval.

Each allocation and each free of the replayed ledger is passed to a simulated allocator (`caching_allocator`), from the
weights on. The first step has no optimizer state; the state is made in its update, in blocks that activations have
left. Two more steps follow, after which reserved memory no longer grows. The third repeats the second if that has added
no segment, and is left out then.

- Low: the highest bytes of blocks in use, in whole segments, without any fragmentation.
- High: the most that is reserved when a block is freed as the ledger frees it, or when up to eight freed blocks wait.
  A program may hold a tensor a little longer than the ledger does.

Both count working storage, the memory that cuBLAS keeps for its products. A captured graph has a pool of its own, which
is not simulated.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from assay.cost.gpu_kernels import libraries, workspaces
from assay.cost.simulation.allocator import Category, Ledger, Requests, Storage
from assay.cost.simulation.caching_allocator import ROUNDED_SEGMENT, CachedBlock, CachingAllocator, Full
from assay.cost.simulation.timeline import play
from assay.cost.step_cost import Cost
from assay.cost.work import recomputed_positions

_DELAYS = (0, 8)
"""Freed blocks that may wait until the allocator has them back."""
_STEPS = 3


@dataclass(frozen=True)
class Interval:
    """Bytes from `low` to `high`."""

    low: int
    high: int

    def plus(self, other: "Interval") -> "Interval":
        """The sum of two independent amounts."""
        return Interval(self.low + other.low, self.high + other.high)


class RecordedLedger(Ledger):
    """A ledger that keeps its requests and frees in order; sums and instants are not counted."""

    def __init__(self) -> None:
        super().__init__(live=0)
        self.requests = Requests()

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Record a request."""
        storage = Storage(nbytes, category, site)
        self.requests.add(storage)
        return storage

    def drop(self, storage: Storage) -> None:
        """Remove one holder; record the free with the last."""
        storage.holders -= 1
        if storage.holders == 0:
            self.requests.free(storage)

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Nothing happens at an instant."""


def kept_workspaces(cost: Cost, capability: tuple[int, int]) -> int:
    """Return the bytes that libraries keep for both threads from the first step on, on a GPU of a capability."""
    sizes = workspaces(capability)
    ahead = {library for one in cost.tape for library in libraries(one)}
    again = {library for index in recomputed_positions(cost) for library in libraries(cost.tape[index])}
    back = {library for one in cost.tape for library in libraries(one)[:1]}
    return sum(sizes[library] for used in (ahead, again | back) for library in used)


def reserved_bytes(cost: Cost, working: Interval, events: Sequence[int] | None = None) -> Interval | None:
    """Return the bytes that the caching allocator reserves; None for a captured graph.

    `working` has the bytes that libraries keep from the same allocator. `events` are those of `record_events`, where a
    replay has kept them already.
    """
    if cost.replayed:
        return None
    events = record_events(cost) if events is None else events
    played = [_played(cost, with_update(events, cost, repeats=delay > 0), working.high, delay) for delay in _DELAYS]
    in_use = min(one.allocated_peak_bytes for one in played) - working.high + working.low
    low = -(-in_use // ROUNDED_SEGMENT) * ROUNDED_SEGMENT
    return Interval(low, max(one.reserved_bytes for one in played))


def record_events(cost: Cost) -> list[int]:
    """Return the requests and frees of a step before its update, as in `Requests.events`."""
    ledger = RecordedLedger()
    play(cost, ledger, update=False)
    return ledger.requests.events


def with_update(events: Sequence[int], cost: Cost, *, repeats: bool = True) -> list[int]:
    """Return the events of a whole step, whose update takes one temporary after the other.

    Without `repeats` it takes one of each size. Where blocks are freed at once, a further one of the same size gets the
    same block, and changes nothing.
    """
    requests = sum(event >= 0 for event in events)
    sizes = [one.nbytes for one in cost.update]
    distinct = sizes if repeats else list(dict.fromkeys(sizes))
    temporaries = ((nbytes, -1 - requests - place) for place, nbytes in enumerate(distinct))
    return [*events, *chain.from_iterable(temporaries)]


def high_within(cost: Cost, events: Sequence[int], working: Interval, limit_bytes: float) -> int | None:
    """Return the high end of `reserved_bytes` if it is at most a limit, else None; the simulation then ends early.

    `events` are those of `with_update`.
    """
    try:
        # Blocks that wait nearly always take more, so they are the first to reach the limit.
        played = [_played(cost, events, working.high, delay, limit_bytes) for delay in reversed(_DELAYS)]
    except Full:
        return None
    return max(one.reserved_bytes for one in played)


def _played(
    cost: Cost, events: Sequence[int], working: int, delay: int, limit_bytes: float = float("inf")
) -> CachingAllocator:
    """Return the allocator after some steps that begin with no memory at all. Raises `Full` beyond the limit."""
    allocator = CachingAllocator(limit_bytes)
    for tensor in cost.held_at_first:
        allocator.allocate(tensor.nbytes)
    allocator.allocate(working)
    for step in range(_STEPS):
        before = allocator.reserved_bytes
        left = _step(allocator, events, delay)
        if step == 0 and not cost.sharding.on_host:
            for tensor in cost.optimizer_state:
                allocator.allocate(tensor.nbytes)
        for block in left:
            allocator.release(block)
        if step > 0 and allocator.reserved_bytes == before:
            break  # all that the step took is free and joined again, so that a further one is the same
    return allocator


def _step(allocator: CachingAllocator, events: Sequence[int], delay: int) -> list[CachedBlock]:
    """Serve the requests of one step; return the blocks that are left, such as gradients and the batch."""
    blocks: list[CachedBlock | None] = []
    waiting: deque[CachedBlock] = deque()
    allocate, release = allocator.allocate, allocator.release
    for event in events:
        if event >= 0:
            blocks.append(allocate(event))
            continue
        block = blocks[-1 - event]
        if block is not None:
            blocks[-1 - event] = None
            waiting.append(block)
            if len(waiting) > delay:
                release(waiting.popleft())
    return [*waiting, *filter(None, blocks)]
