"""NCCL's own buffers of one rank, as a range. They are outside of torch's allocator, and depend on links and topology.

A rank has buffers for each channel and each peer that it is connected to. A connection has a buffer for each of three
protocols. `NCCL_BUFFSIZE` is that of the first, 4 MiB by default (docs.nvidia.com/deeplearning/nccl, environment
variables). That of LL has 524,288 bytes: 8 lines of 16 bytes for each of 512 threads and 8 steps. That of LL128 has
4,915,200 bytes: 120 words of 8 bytes for each of 640 threads and 8 steps. Both are from NCCL's code (`computeBuffSizes`
in `src/init.cc`, and `src/include/device.h`). NCCL allocates in units of 2 MiB: 10,485,760 bytes on the receiving side
and 2,097,152 on the sending side, the two sizes that NVIDIA/nccl#1685 lists.

- Low: two channels, as over PCIe (NVIDIA/nccl#1358), to one peer.
- High: 32 channels, as between H100 (NVIDIA/nccl#1685), or `NCCL_MAX_NCHANNELS`. Collectives have three connections in
  each: to the next rank of a ring, and to two of a tree. An all-to-all, or sends and receives, may reach every peer.

Published figures are below the high end. A group took 544 MB among two A100 and 688 MB among more (NVIDIA/nccl#964),
where it is 1.21 GB. Eight H100 had 4.34 GB after an all-to-all, with the context (NVIDIA/nccl#1685), where it is
4.03 GB and a context. Groups that share memory (`ncclCommSplit`), buffers of a network and NVLink SHARP are not
modelled.
"""

from collections.abc import Iterable, Mapping

from assay.absent.observation import Collective

_MIB = 2**20
_UNIT = 2 * _MIB
_SIMPLE, _LL, _LL128 = 4 * _MIB, 8 * 512 * 8 * 16, 120 * 640 * 8 * 8
_CHANNELS = (2, 32)
_CONNECTIONS = 3
"""Most connections of a channel for collectives that are no all-to-all."""
_TO_PEERS = frozenset({"all_to_all", "send", "recv"})
"""Calls that may connect a rank to every other of its group."""


def nccl_bytes(calls: Iterable[Collective], variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the least and most bytes of NCCL's buffers of a rank that makes these calls.

    `variables` are those of its environment, of which NCCL's change the sizes.
    """
    names: dict[tuple[int, ...], set[str]] = {}
    for call in calls:
        if len(call.ranks) > 1:
            names.setdefault(call.ranks, set()).add(call.name)
    simple = _stated(variables, "NCCL_BUFFSIZE", _SIMPLE)
    connection = -(-(simple + _LL + _LL128) // _UNIT) * _UNIT + _UNIT
    most = _stated(variables, "NCCL_MAX_NCHANNELS", _CHANNELS[1])
    peers = sum(
        (_CONNECTIONS if found - _TO_PEERS else 0) + (len(group) - 1 if found & _TO_PEERS else 0)
        for group, found in names.items()
    )
    return len(names) * min(_CHANNELS[0], most) * connection, peers * most * connection


def _stated(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, "")
    return int(text) if text.isdigit() and int(text) else default
