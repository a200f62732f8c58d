"""Bytes of a rank's collectives, counted at two places: the argument of the call, and the traffic on the link.

One all-gather has three different sizes, so each has its own name. `payload_bytes` is the whole tensor, which every
rank holds before a reduce-scatter and after an all-gather. `handed_bytes` is the argument of the call, which an
instrument at the call sees. `sent_bytes` leave a rank, under the algorithms with the least traffic for large tensors:
rings, and pairwise exchange.

| collective | argument | sent by a rank | steps |
| --- | --- | --- | --- |
| all-reduce | B | 2 (n−1)/n B | 2 (n−1) |
| reduce-scatter | B | (n−1)/n B | n−1 |
| all-gather | B/n | (n−1)/n B | n−1 |
| broadcast | B | B | n−1 |
| all-to-all | B | (n−1)/n B | n−1 |
| send | B | B | 1 |

A rank receives as many bytes as it sends. In a broadcast this holds for the ranks between the two ends of the chain, in
a send for a rank between two others. Trees take fewer steps (about 2 log₂ n for an all-reduce) at the same traffic. A
switch that sums in flight about halves an all-reduce's traffic. Neither is counted here.

Sources: Thakur, Rabenseifner and Gropp 2005 (doi:10.1177/1094342005051521); Patarasuk and Yuan 2009
(doi:10.1016/j.jpdc.2008.09.002), whose lower bound the ring all-reduce meets. The factors are those by which nccl-tests
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
    """Bytes that leave each of `ranks` ranks; 0 if there is only one."""
    if ranks == 1:
        return 0.0
    if collective in ("broadcast", "send"):
        return float(payload_bytes)
    passes = 2 if collective == "all_reduce" else 1
    return passes * (ranks - 1) * payload_bytes / ranks


def handed_bytes(collective: Collective, ranks: int, payload_bytes: float) -> float:
    """Bytes of the argument with which each of `ranks` ranks calls."""
    return payload_bytes / ranks if collective == "all_gather" else float(payload_bytes)


def steps(collective: Collective, ranks: int) -> int:
    """Number of messages that a rank waits for, one after the other; each costs the link's latency."""
    if ranks == 1:
        return 0
    if collective == "send":
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1)


@dataclass(frozen=True)
class Communication:
    """A collective that runs `count` times in a step, among the ranks that differ along an axis."""

    collective: Collective
    axis: str
    """Axis of the mesh, or several joined by ``+``: a gradient is summed over ``dp+cp``."""
    payload_bytes: float
    """Bytes of the whole tensor in one call."""
    count: int = 1
    what: str = ""
    """The payload, in words."""
    dtype: str = "bfloat16"

    def cut(self, parts: int) -> Self:
        """The communication of one of `parts` equal parts of the payload."""
        return replace(self, payload_bytes=self.payload_bytes / parts)

    def ranks(self, mesh: Mesh) -> int:
        """Number of ranks that take part."""
        return prod(map(mesh.degree, self.axis.split("+")))

    def sent_bytes(self, mesh: Mesh) -> float:
        """Bytes that leave a rank in all `count` calls."""
        return self.count * sent_bytes(self.collective, self.ranks(mesh), self.payload_bytes)

    def handed_bytes(self, mesh: Mesh) -> float:
        """Bytes of a rank's arguments in all `count` calls; a group of one rank makes none."""
        ranks = self.ranks(mesh)
        return self.count * handed_bytes(self.collective, ranks, self.payload_bytes) if ranks > 1 else 0.0

    def steps(self, mesh: Mesh) -> int:
        """Number of messages in sequence in all `count` calls."""
        return self.count * steps(self.collective, self.ranks(mesh))


def sent_by_axis(communications: Iterable[Communication], mesh: Mesh) -> dict[str, float]:
    """Bytes that leave a rank in a step, by axis; an axis of one rank is left out."""
    total: dict[str, float] = {}
    for one in communications:
        if one.ranks(mesh) > 1:
            total[one.axis] = total.get(one.axis, 0.0) + one.sent_bytes(mesh)
    return total
