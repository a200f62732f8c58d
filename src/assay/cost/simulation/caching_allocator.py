"""torch's caching allocator of a GPU, as far as it decides how much memory is reserved.

A request is rounded to 512 bytes. Requests up to 1 MiB are served from segments of 2 MiB, the small pool. Larger ones
are served from the large pool. Its segments have 20 MiB for requests below 10 MiB, and else the request rounded up to 2
MiB. The smallest free block of the pool that is large enough serves a request; of equals, the one with the lowest
address. A block is split if its rest has at least 512 bytes, or more than 1 MiB in the large pool. A freed block is
joined with free neighbours of its segment. Segments are kept (constants and rules of
`c10/cuda/CUDACachingAllocator.cpp` in torch 2.13, with its default settings: no expandable segments, no largest block
to split, one stream).

Left out: what the allocator does when the device is full. It then frees the segments that hold nothing.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIN_BLOCK = 512
SMALL_REQUEST = 2**20
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
"""Smallest request that has a segment of its own size."""
ROUNDED_SEGMENT = 2 * 2**20


@dataclass(eq=False, slots=True)
class CachedBlock:
    """A piece of a segment."""

    address: int
    nbytes: int
    small: bool
    """True if it belongs to the small pool."""
    free: bool = False
    before: "CachedBlock | None" = None
    after: "CachedBlock | None" = None
    """Neighbours in the same segment."""


Free = tuple[int, int, CachedBlock]
"""Bytes and address of a free block, which are the order in which free blocks are tried, and the block."""


class Full(Exception):  # it is an answer, not an error
    """A request needs a segment beyond the allocator's limit."""


@dataclass
class CachingAllocator:
    """Reserved and allocated bytes while blocks are requested and freed. Raises `Full` beyond the limit."""

    limit_bytes: float = float("inf")
    reserved_bytes: int = 0
    allocated_bytes: int = 0
    """Bytes of the blocks in use, rounded as the allocator rounds them."""
    allocated_peak_bytes: int = 0
    _small: list[Free] = field(default_factory=list)
    _large: list[Free] = field(default_factory=list)
    """Free blocks of each pool, in order."""

    def allocate(self, nbytes: int) -> CachedBlock | None:
        """Return a block for a request; None for an empty one, which takes nothing."""
        if nbytes == 0:
            return None
        size = -(-nbytes // MIN_BLOCK) * MIN_BLOCK
        small = size <= SMALL_REQUEST
        free = self._small if small else self._large
        place = bisect_left(free, (size,))
        block = free.pop(place)[2] if place < len(free) else self._segment(size)
        block.free = False
        rest = block.nbytes - size
        if rest >= MIN_BLOCK if small else rest > SMALL_REQUEST:
            other = CachedBlock(block.address + size, rest, small, True, block, block.after)
            if block.after is not None:
                block.after.before = other
            block.nbytes, block.after = size, other
            insort(free, (rest, other.address, other))
        self.allocated_bytes += block.nbytes
        if self.allocated_bytes > self.allocated_peak_bytes:
            self.allocated_peak_bytes = self.allocated_bytes
        return block

    def release(self, block: CachedBlock) -> None:
        """Free a block, and join it with free neighbours."""
        self.allocated_bytes -= block.nbytes
        free, before, after = self._small if block.small else self._large, block.before, block.after
        if before is not None and before.free:
            del free[bisect_left(free, (before.nbytes, before.address))]
            block.address, block.before = before.address, before.before
            block.nbytes += before.nbytes
            if block.before is not None:
                block.before.after = block
        if after is not None and after.free:
            del free[bisect_left(free, (after.nbytes, after.address))]
            block.after = after.after
            block.nbytes += after.nbytes
            if block.after is not None:
                block.after.before = block
        block.free = True
        insort(free, (block.nbytes, block.address, block))

    def _segment(self, size: int) -> CachedBlock:
        """Return a new segment. It has no neighbours, and lies higher than all earlier ones."""
        nbytes = segment_bytes(size)
        block = CachedBlock(self.reserved_bytes, nbytes, size <= SMALL_REQUEST)
        self.reserved_bytes += nbytes
        if self.reserved_bytes > self.limit_bytes:
            raise Full
        return block


def block_bytes(nbytes: int) -> int:
    """Bytes of the block that serves a request."""
    return -(-nbytes // MIN_BLOCK) * MIN_BLOCK


def segment_bytes(size: int) -> int:
    """Bytes of a new segment for a rounded request."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // ROUNDED_SEGMENT) * ROUNDED_SEGMENT
