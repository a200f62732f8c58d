"""What connects devices: a latency and a bandwidth for each kind of link, and which link an axis of a mesh uses.

A message of B bytes takes α + B/β seconds (Hockney 1994), so a collective takes its steps times α and what a rank
sends over β. Bandwidths are of one direction, which is half of what most datasheets print, and are peaks: NCCL expects
235 of an A100's 300 GB/s. Latencies are what NCCL itself assumes of a step of a ring with its Simple protocol when it
chooses an algorithm (both in github.com/NVIDIA/nccl, src/graph/tuning.cc at 01afd20); with LL, its protocol for small
messages, they are a quarter to a seventh of that.

A group that fits into a node uses the inner link. One that does not is as fast as its slowest part, the outer link: of
a node's ports it has the share that its members in the node have of the node's ranks, since the other groups of the
axis send at the same time. Shared switches and oversubscribed networks are not modelled. A link of this machine
(gloo over loopback) is for a measurement to fill in: it has no datasheet.
"""

from math import prod

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen
from assay.config.mesh import AXES, Mesh


class Link(Frozen):
    """One port of one device."""

    name: str
    latency_seconds: PositiveFloat
    bandwidth_bytes: PositiveFloat
    """Bytes per second, in one direction."""
    source: str

    def seconds(self, sent_bytes: float, steps: int = 1) -> float:
        """How long a rank takes to send so much in so many messages, one after the other."""
        return steps * self.latency_seconds + sent_bytes / self.bandwidth_bytes


_NCCL = "latency: NCCL's tuning.cc, ring, Simple, "

NVLINK_A100 = Link(
    name="NVLink 3 (A100)",
    latency_seconds=3.4e-6,
    bandwidth_bytes=300e9,
    source=f"NVIDIA A100 datasheet: 600 GB/s, both directions; {_NCCL}NVLink",
)
NVLINK_H100 = Link(
    name="NVLink 4 (H100)",
    latency_seconds=3.4e-6,
    bandwidth_bytes=450e9,
    source=f"NVIDIA H100 datasheet: 900 GB/s, both directions; {_NCCL}NVLink",
)
NVLINK_H200 = Link(
    name="NVLink 4 (H200)",
    latency_seconds=3.4e-6,
    bandwidth_bytes=450e9,
    source=f"NVIDIA H200 datasheet: 900 GB/s, both directions; {_NCCL}NVLink",
)
PCIE_4 = Link(
    name="PCIe 4.0 x16",
    latency_seconds=5.7e-6,
    bandwidth_bytes=16e9 * 16 / 8 * 128 / 130,
    source=f"PCI Express base specification 4.0: 16 GT/s a lane, 128b/130b; {_NCCL}PCI",
)
PCIE_5 = Link(
    name="PCIe 5.0 x16",
    latency_seconds=5.7e-6,
    bandwidth_bytes=32e9 * 16 / 8 * 128 / 130,
    source=f"PCI Express base specification 5.0: 32 GT/s a lane, 128b/130b; {_NCCL}PCI",
)
INFINIBAND_HDR = Link(
    name="InfiniBand HDR",
    latency_seconds=9.6e-6,
    bandwidth_bytes=25e9,
    source=f"NVIDIA ConnectX-6 datasheet: 200 Gb/s; {_NCCL}network",
)
INFINIBAND_NDR = Link(
    name="InfiniBand NDR",
    latency_seconds=9.6e-6,
    bandwidth_bytes=50e9,
    source=f"NVIDIA ConnectX-7 datasheet: 400 Gb/s; {_NCCL}network",
)
ETHERNET_100G = Link(
    name="Ethernet 100G",
    latency_seconds=9.6e-6,
    bandwidth_bytes=12.5e9,
    source=f"IEEE 802.3: 100 Gb/s; {_NCCL}network, and more over sockets",
)

LINKS = (
    NVLINK_A100,
    NVLINK_H100,
    NVLINK_H200,
    PCIE_4,
    PCIE_5,
    INFINIBAND_HDR,
    INFINIBAND_NDR,
    ETHERNET_100G,
)


class Network(Frozen):
    """Nodes of equal size, with one kind of link inside them and another between them."""

    inner: Link
    outer: Link
    ranks_per_node: PositiveInt
    ports_per_node: PositiveInt | None = None
    """Of the outer link. None: one for each rank, as in a DGX A100 or H100."""

    def link(self, mesh: Mesh, axis: str) -> Link:
        """The link of a group along `axis` (several joined by ``+`` are one group), as wide as it is for a rank."""
        if inside_node(mesh, axis, self.ranks_per_node):
            return self.inner
        stride, degree = _extent(mesh, axis)
        # The stages of a pipeline send one to one: there the other members in the node lend no port.
        members = 1 if axis == "pp" else max(1, min(degree, self.ranks_per_node // stride))
        ports = self.ports_per_node or self.ranks_per_node
        share = self.outer.bandwidth_bytes * ports * members / self.ranks_per_node
        return self.outer.model_copy(update={"bandwidth_bytes": min(share, self.inner.bandwidth_bytes)})


def inside_node(mesh: Mesh, axis: str, ranks_per_node: int) -> bool:
    """Whether every group along `axis` (neighbouring axes joined by ``+``) lies within one node.

    Groups lie in blocks of stride × degree ranks, and any node's edge inside a block cuts one of its groups.
    """
    stride, degree = _extent(mesh, axis)
    return degree == 1 or ranks_per_node >= mesh.size or ranks_per_node % (stride * degree) == 0


def _extent(mesh: Mesh, axis: str) -> tuple[int, int]:
    """How far apart the members of a group are, and how many there are."""
    joined = axis.split("+")
    innermost = max(map(AXES.index, joined))
    return prod(map(mesh.degree, AXES[innermost + 1 :])), prod(map(mesh.degree, joined))
