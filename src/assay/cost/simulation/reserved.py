"""Bytes that torch's caching allocator reserves for a step, as an interval.

Each allocation and each free of the replayed ledger is passed to a simulated allocator (`caching_allocator`), from the
weights on. The first step has no optimizer state; the state is made in its update, in blocks that activations have
left. Two more steps follow, after which reserved memory no longer grows.

- Low: the highest bytes of blocks in use, in whole segments, without any fragmentation.
- High: the most that is reserved when a block is freed as the ledger frees it, or when up to eight freed blocks wait.
  A program may hold a tensor a little longer than the ledger does.

Both count working storage, the memory that cuBLAS keeps for its products. A captured graph has a pool of its own, which
is not simulated.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from assay.cost.simulation.allocator import Category, Ledger, Storage
from assay.cost.simulation.caching_allocator import ROUNDED_SEGMENT, Block, CachingAllocator
from assay.cost.simulation.timeline import replay
from assay.cost.step import Cost

_DELAYS = (0, 8)
"""Freed blocks that may wait until the allocator has them back."""
_STEPS = 3
_FREED = -1


@dataclass(frozen=True)
class Interval:
    """Bytes from `low` to `high`."""

    low: int
    high: int

    def plus(self, other: "Interval") -> "Interval":
        """The sum of two independent amounts."""
        return Interval(self.low + other.low, self.high + other.high)


class Recorded(Ledger):
    """A ledger that keeps its requests and frees in order."""

    def __init__(self, live: int) -> None:
        super().__init__(live=live)
        self.events: list[tuple[int, int]] = []
        """Number of a request with its bytes, and again with −1 when it is freed."""
        self._numbers: dict[Storage, int] = {}

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Record a request."""
        storage = super().take(nbytes, category, site)
        self._numbers[storage] = len(self.events)
        self.events.append((len(self.events), nbytes))
        return storage

    def drop(self, storage: Storage) -> None:
        """Remove one holder; record the free with the last."""
        super().drop(storage)
        if storage.holders == 0 and storage in self._numbers:
            self.events.append((self._numbers.pop(storage), _FREED))


def reserved(cost: Cost, working: Interval) -> Interval | None:
    """Return the bytes that the caching allocator reserves; None for a captured graph.

    `working` has the bytes that libraries keep from the same allocator.
    """
    if cost.replayed:
        return None
    ledger = Recorded(cost.held_bytes)
    for tensor in cost.batch.tensors:
        ledger.take(tensor.nbytes)
    replay(cost, ledger)
    played = [_played(cost, ledger.events, working.high, delay) for delay in _DELAYS]
    in_use = min(one.allocated_peak_bytes for one in played) - working.high + working.low
    low = -(-in_use // ROUNDED_SEGMENT) * ROUNDED_SEGMENT
    return Interval(low, max(one.reserved_bytes for one in played))


def _played(cost: Cost, events: Sequence[tuple[int, int]], working: int, delay: int) -> CachingAllocator:
    """Return the allocator after some steps that begin with no memory at all."""
    allocator = CachingAllocator()
    for tensor in cost.held_at_first:
        allocator.allocate(tensor.nbytes)
    allocator.allocate(working)
    for step in range(_STEPS):
        left = _step(allocator, events, delay)
        if step == 0 and not cost.sharding.on_host:
            for tensor in cost.optimizer_state:
                allocator.allocate(tensor.nbytes)
        for block in left:
            allocator.release(block)
    return allocator


def _step(allocator: CachingAllocator, events: Sequence[tuple[int, int]], delay: int) -> list[Block]:
    """Serve the requests of one step; return the blocks that are left, such as gradients and the batch."""
    blocks: dict[int, Block] = {}
    waiting: deque[Block] = deque()
    for number, nbytes in events:
        if nbytes == _FREED:
            if number in blocks:
                waiting.append(blocks.pop(number))
        else:
            block = allocator.allocate(nbytes)
            if block is not None:
                blocks[number] = block
        while len(waiting) > delay:
            allocator.release(waiting.popleft())
    return [*waiting, *blocks.values()]
