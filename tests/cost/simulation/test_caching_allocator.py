"""The caching allocator: torch's own table of reserved bytes, and a slow search of every free gap."""

import random

import pytest

from assay.cost.simulation.caching_allocator import CachedBlock, CachingAllocator
from support.allocators import Slow

MIB = 2**20


@pytest.mark.parametrize(
    ("nbytes", "requests", "reserved"),
    [
        (512, 1, 2 * MIB),
        (MIB, 2, 2 * 2 * MIB - 2 * MIB),
        (MIB + 512, 1, 20 * MIB),
        (10 * MIB - 512, 2, 20 * MIB),
        (10 * MIB - 512, 3, 2 * 20 * MIB),
        (10 * MIB + 512, 3, 3 * 12 * MIB),
        (1, 4096, 2 * MIB),
        (1, 4097, 2 * 2 * MIB),
        (0, 5, 0),
    ],
)
def test_segments_have_the_documented_sizes(nbytes: int, requests: int, reserved: int) -> None:
    """Sizes are those of `test_graph_memory_stats_and_use_result_after_destroy_graph` in torch's test_cuda.py."""
    pool = CachingAllocator()
    for _ in range(requests):
        pool.allocate(nbytes)
    assert pool.reserved_bytes == reserved


def test_a_large_block_keeps_a_rest_of_up_to_a_mebibyte() -> None:
    pool = CachingAllocator()
    first = pool.allocate(19 * MIB)
    assert first is not None
    assert pool.reserved_bytes == 20 * MIB == first.nbytes  # the rest has exactly a mebibyte
    pool.release(first)
    again = pool.allocate(19 * MIB - 512)
    assert again is not None
    assert again.nbytes == 19 * MIB - 512
    assert pool.reserved_bytes == 20 * MIB


def test_neighbours_are_joined_and_a_segment_is_kept() -> None:
    pool = CachingAllocator()
    blocks = [pool.allocate(6 * MIB) for _ in range(3)]
    assert pool.reserved_bytes == 20 * MIB
    for place in (0, 2, 1):
        block = blocks[place]
        assert block is not None
        pool.release(block)
    assert (pool.allocated_bytes, pool.reserved_bytes) == (0, 20 * MIB)
    assert pool.allocate(20 * MIB) is not None
    assert pool.reserved_bytes == 20 * MIB


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_is_served_as_by_a_search_of_all_gaps(seed: int) -> None:
    draw = random.Random(seed)
    fast, slow = CachingAllocator(), Slow()
    alive: dict[int, CachedBlock] = {}
    for number in range(400):
        if alive and draw.random() < 0.45:
            gone = draw.choice(list(alive))
            fast.release(alive.pop(gone))
            slow.release(gone)
        else:
            nbytes = round(2 ** draw.uniform(5, 25))
            block = fast.allocate(nbytes)
            assert block is not None
            alive[number] = block
            slow.allocate(number, nbytes)
        assert fast.reserved_bytes == slow.reserved_bytes
        assert fast.allocated_bytes == sum(one.nbytes for one in alive.values())
