"""What a rank sends in a collective, counted at two places: what the caller hands over, and what goes over the wire.

Three sizes of one all-gather are three different numbers, so each has its own name. `payload_bytes` is the whole
tensor: what every rank holds before a reduce-scatter and after an all-gather. `handed_bytes` is the argument of the
call, which is what an instrument at the call sees. `sent_bytes` is what leaves a rank, under the algorithms whose
traffic is least for large tensors: rings, and pairwise exchange.

| collective | handed over | sent by a rank | steps |
| --- | --- | --- | --- |
| all-reduce | B | 2 (n−1)/n B | 2 (n−1) |
| reduce-scatter | B | (n−1)/n B | n−1 |
| all-gather | B/n | (n−1)/n B | n−1 |
| broadcast | B | B | n−1 |
| all-to-all | B | (n−1)/n B | n−1 |
| send | B | B | 1 |

What a rank receives is as much. In a broadcast that is true of every rank between the two ends of the chain, and in a
send of a rank between two others. Trees take fewer steps (about 2 log₂ n for an all-reduce) at the same traffic, and a
switch that adds up in flight about halves an all-reduce's; neither is counted here.

Sources: Thakur, Rabenseifner and Gropp 2005 (doi:10.1177/1094342005051521); Patarasuk and Yuan 2009
(doi:10.1016/j.jpdc.2008.09.002), whose lower bound the ring all-reduce meets; the factors are those by which nccl-tests
turns time into bus bandwidth (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Self, get_args

from assay.config.mesh import Mesh

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


def sent_bytes(collective: Collective, ranks: int, payload_bytes: float) -> float:
    """What leaves one of `ranks` ranks; nothing does where there is only one."""
    if ranks == 1:
        return 0.0
    if collective in ("broadcast", "send"):
        return float(payload_bytes)
    passes = 2 if collective == "all_reduce" else 1
    return passes * (ranks - 1) * payload_bytes / ranks


def handed_bytes(collective: Collective, ranks: int, payload_bytes: float) -> float:
    """The size of the argument with which one of `ranks` ranks calls."""
    return payload_bytes / ranks if collective == "all_gather" else float(payload_bytes)


def steps(collective: Collective, ranks: int) -> int:
    """How many messages a rank must wait for, one after the other: each costs the link's latency."""
    if ranks == 1:
        return 0
    if collective == "send":
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1)


@dataclass(frozen=True)
class Communication:
    """The same collective `count` times in a step, among the ranks that differ along an axis."""

    collective: Collective
    axis: str
    """One of the mesh's, or several joined by ``+`` whose ranks join: a gradient is summed over ``dp+cp``."""
    payload_bytes: float
    """Of the whole tensor, once."""
    count: int = 1
    what: str = ""
    """What is sent, in words."""
    dtype: str = "bfloat16"

    def cut(self, parts: int) -> Self:
        """The same of one of so many parts."""
        return replace(self, payload_bytes=self.payload_bytes / parts)

    def ranks(self, mesh: Mesh) -> int:
        """How many ranks join."""
        return prod(map(mesh.degree, self.axis.split("+")))

    def sent_bytes(self, mesh: Mesh) -> float:
        """What leaves a rank, over all `count` times."""
        return self.count * sent_bytes(self.collective, self.ranks(mesh), self.payload_bytes)

    def handed_bytes(self, mesh: Mesh) -> float:
        """What a rank hands over in all `count` calls; a group of one makes none."""
        ranks = self.ranks(mesh)
        return self.count * handed_bytes(self.collective, ranks, self.payload_bytes) if ranks > 1 else 0.0

    def steps(self, mesh: Mesh) -> int:
        """Latencies in a row, over all `count` times."""
        return self.count * steps(self.collective, self.ranks(mesh))


def sent_by_axis(communications: Iterable[Communication], mesh: Mesh) -> dict[str, float]:
    """Bytes that leave a rank in a step, by axis; an axis of one rank is left out."""
    total: dict[str, float] = {}
    for one in communications:
        if one.ranks(mesh) > 1:
            total[one.axis] = total.get(one.axis, 0.0) + one.sent_bytes(mesh)
    return total
