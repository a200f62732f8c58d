"""NCCL's own buffers as a range: sizes of its documented defaults, and published figures inside of it."""

import pytest

from assay.absent.nccl import nccl_bytes
from assay.absent.observation import Collective

MIB, MB = 2**20, 10**6


def call(name: str, *ranks: int) -> Collective:
    return Collective(name=name, bytes=4 * MIB, ranks=ranks)


def test_a_connection_has_the_sizes_that_nccl_logs() -> None:
    """Both sizes are those of NVIDIA/nccl#1685: 10,485,760 and 2,097,152 bytes."""
    one_channel = {"NCCL_MAX_NCHANNELS": "1"}
    assert nccl_bytes([call("all_reduce", 0, 1)], one_channel) == (10_485_760 + 2_097_152, 3 * (10_485_760 + 2_097_152))


@pytest.mark.parametrize(("ranks", "measured"), [((0, 1), 544 * MB), ((0, 1, 2, 3), 688 * MB)])
def test_groups_of_a100_took_bytes_within_the_range(ranks: tuple[int, ...], measured: int) -> None:
    low, high = nccl_bytes([call("all_reduce", *ranks)] * 5, {})
    assert low < measured < high


def test_an_all_to_all_among_eight_reaches_every_peer() -> None:
    group = tuple(range(8))
    _, reduced = nccl_bytes([call("all_reduce", *group)], {})
    _, both = nccl_bytes([call("all_reduce", *group), call("all_to_all", *group)], {})
    assert both - reduced == 7 * 32 * 12 * MIB
    assert both + 790 * MB > 4340 * MB, "after an all-to-all, with the context"


def test_each_group_has_buffers_of_its_own_and_one_rank_has_none() -> None:
    one = nccl_bytes([call("all_gather", 0, 1)], {})
    assert nccl_bytes([call("all_gather", 0, 1), call("all_gather", 0, 2)], {}) == (2 * one[0], 2 * one[1])
    assert nccl_bytes([call("all_gather", 0)], {}) == nccl_bytes([], {}) == (0, 0)


def test_the_size_of_the_first_buffer_may_be_stated() -> None:
    default, smaller = (nccl_bytes([call("broadcast", 0, 1)], {"NCCL_BUFFSIZE": text}) for text in ("x", str(MIB)))
    assert smaller[0] == default[0] - 2 * 2 * MIB
