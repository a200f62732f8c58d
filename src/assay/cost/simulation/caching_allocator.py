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
from itertools import count

MIN_BLOCK = 512
SMALL_REQUEST = 2**20
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
"""Smallest request that has a segment of its own size."""
ROUNDED_SEGMENT = 2 * 2**20


@dataclass(eq=False)
class Block:
    """A piece of a segment."""

    address: int
    nbytes: int
    small: bool
    """True if it belongs to the small pool."""
    free: bool = False
    before: "Block | None" = None
    after: "Block | None" = None
    """Neighbours in the same segment."""

    @property
    def key(self) -> tuple[int, int]:
        """The order in which free blocks are tried."""
        return self.nbytes, self.address


@dataclass
class CachingAllocator:
    """Reserved and allocated bytes while blocks are requested and freed."""

    reserved_bytes: int = 0
    allocated_bytes: int = 0
    """Bytes of the blocks in use, rounded as the allocator rounds them."""
    allocated_peak_bytes: int = 0
    _free: dict[bool, list[tuple[tuple[int, int], int]]] = field(default_factory=lambda: {True: [], False: []})
    """Free blocks of each pool by key, with a number of their own."""
    _blocks: dict[int, Block] = field(default_factory=dict)
    _segments: count = field(default_factory=count)  # type: ignore[type-arg]

    def allocate(self, nbytes: int) -> Block | None:
        """Return a block for a request; None for an empty one, which takes nothing."""
        if nbytes == 0:
            return None
        size = rounded(nbytes)
        block = self._found(size) or self._segment(size)
        rest = block.nbytes - size
        if rest >= MIN_BLOCK if block.small else rest > SMALL_REQUEST:
            self._split(block, size)
        block.free = False
        self.allocated_bytes += block.nbytes
        self.allocated_peak_bytes = max(self.allocated_peak_bytes, self.allocated_bytes)
        return block

    def release(self, block: Block) -> None:
        """Free a block, and join it with free neighbours."""
        self.allocated_bytes -= block.nbytes
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._remove(other)
                self._join(block, other)
        self._insert(block)

    def _found(self, size: int) -> Block | None:
        free = self._free[size <= SMALL_REQUEST]
        place = bisect_left(free, ((size, -1), -1))
        if place == len(free):
            return None
        block = self._blocks[free[place][1]]
        self._remove(block)
        return block

    def _segment(self, size: int) -> Block:
        nbytes = segment_bytes(size)
        self.reserved_bytes += nbytes
        # Segments are as far apart as addresses need to be, and a later one lies higher.
        return Block(next(self._segments) << 48, nbytes, size <= SMALL_REQUEST)

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.nbytes - size, block.small, before=block, after=block.after)
        if rest.after is not None:
            rest.after.before = rest
        block.nbytes, block.after = size, rest
        self._insert(rest)

    def _join(self, block: Block, other: Block) -> None:
        if other is block.before:
            block.address, block.before = other.address, other.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = other.after
            if block.after is not None:
                block.after.before = block
        block.nbytes += other.nbytes

    def _insert(self, block: Block) -> None:
        block.free = True
        self._blocks[id(block)] = block
        insort(self._free[block.small], (block.key, id(block)))

    def _remove(self, block: Block) -> None:
        free = self._free[block.small]
        free.pop(bisect_left(free, (block.key, id(block))))
        del self._blocks[id(block)]
        block.free = False


def rounded(nbytes: int) -> int:
    """Bytes of the block that serves a request."""
    return -(-nbytes // MIN_BLOCK) * MIN_BLOCK


def segment_bytes(size: int) -> int:
    """Bytes of a new segment for a rounded request."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // ROUNDED_SEGMENT) * ROUNDED_SEGMENT
