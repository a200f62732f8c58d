"""Links between devices: latency and bandwidth of each kind, and the link that an axis of a mesh uses.

A message of B bytes takes α + B/β seconds (Hockney 1994). A collective takes α for each of its steps, plus the bytes
that a rank sends over β. Bandwidths are of one direction, half of what most datasheets print, and are peaks: NCCL
expects 235 of an A100's 300 GB/s. Latencies are NCCL's figures for a step of a ring with its Simple protocol, by which
it chooses an algorithm. Both are in github.com/NVIDIA/nccl, src/graph/tuning.cc at 01afd20. With LL, its protocol for
small messages, latencies are a quarter to a seventh of that.

A group that fits into a node uses the inner link. A larger group is as fast as its slowest part, the outer link. It
gets the share of a node's ports that its members are of the node's ranks. The other groups of the axis use the rest at
the same time. Shared switches and oversubscribed networks are not modelled. A link of this machine (gloo over loopback)
has no datasheet: `instruments.rates.torch_rates.measure_link` measures it, with the other rates.
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
        """Seconds in which a rank sends `sent_bytes` in `steps` messages, one after the other."""
        return steps * self.latency_seconds + sent_bytes / self.bandwidth_bytes


def _link(name: str, bandwidth_bytes: float, source: str, step: tuple[str, float]) -> Link:
    kind, latency = step
    told = f"{source}; latency: NCCL's tuning.cc, ring, Simple, {kind}"
    return Link(name=name, latency_seconds=latency, bandwidth_bytes=bandwidth_bytes, source=told)


def _pcie(generation: int, transfers: float) -> Link:
    """A link of sixteen lanes with `transfers` bits per second each; 128 of 130 bits carry data."""
    source = f"PCI Express base specification {generation}.0: {transfers / 1e9:.0f} GT/s a lane, 128b/130b"
    return _link(f"PCIe {generation}.0 x16", transfers * 16 / 8 * 128 / 130, source, _PCI)


_NVLINK, _PCI, _NETWORK = ("NVLink", 3.4e-6), ("PCI", 5.7e-6), ("network", 9.6e-6)
"""Kinds of links, with NCCL's latency of one step in seconds."""

NVLINK_A100 = _link("NVLink 3 (A100)", 300e9, "NVIDIA A100 datasheet: 600 GB/s, both directions", _NVLINK)
NVLINK_H100 = _link("NVLink 4 (H100)", 450e9, "NVIDIA H100 datasheet: 900 GB/s, both directions", _NVLINK)
NVLINK_H200 = _link("NVLink 4 (H200)", 450e9, "NVIDIA H200 datasheet: 900 GB/s, both directions", _NVLINK)
PCIE_4 = _pcie(4, 16e9)
PCIE_5 = _pcie(5, 32e9)
INFINIBAND_HDR = _link("InfiniBand HDR", 25e9, "NVIDIA ConnectX-6 datasheet: 200 Gb/s", _NETWORK)
INFINIBAND_NDR = _link("InfiniBand NDR", 50e9, "NVIDIA ConnectX-7 datasheet: 400 Gb/s", _NETWORK)
ETHERNET_100G = _link("Ethernet 100G", 12.5e9, "IEEE 802.3: 100 Gb/s, more latency over sockets", _NETWORK)

LINKS = (NVLINK_A100, NVLINK_H100, NVLINK_H200, PCIE_4, PCIE_5, INFINIBAND_HDR, INFINIBAND_NDR, ETHERNET_100G)


class Network(Frozen):
    """Nodes of equal size, with one kind of link inside them and another between them."""

    inner: Link
    outer: Link
    ranks_per_node: PositiveInt
    ports_per_node: PositiveInt | None = None
    """Ports of a node to the outer link. None: one for each rank, as in a DGX A100 or H100."""

    def link(self, mesh: Mesh, axis: str) -> Link:
        """Return the link of a group along `axis`, with one rank's bandwidth. Axes joined by ``+`` form one group."""
        if inside_node(mesh, axis, self.ranks_per_node):
            return self.inner
        stride, degree = _extent(mesh, axis)
        # Pipeline stages send point to point, so the group's other members in the node contribute no port.
        members = 1 if axis == "pp" else max(1, min(degree, self.ranks_per_node // stride))
        ports = self.ports_per_node or self.ranks_per_node
        share = self.outer.bandwidth_bytes * ports * members / self.ranks_per_node
        return self.outer.model_copy(update={"bandwidth_bytes": min(share, self.inner.bandwidth_bytes)})


def inside_node(mesh: Mesh, axis: str, ranks_per_node: int) -> bool:
    """True if every group along `axis` (neighbouring axes joined by ``+``) is within one node.

    Groups fill blocks of stride × degree ranks, and a node's boundary inside a block splits one of its groups.
    """
    stride, degree = _extent(mesh, axis)
    return degree == 1 or ranks_per_node >= mesh.size or ranks_per_node % (stride * degree) == 0


def _extent(mesh: Mesh, axis: str) -> tuple[int, int]:
    """Stride in ranks between the members of a group, and their number."""
    joined = axis.split("+")
    innermost = max(map(AXES.index, joined))
    return prod(map(mesh.degree, AXES[innermost + 1 :])), prod(map(mesh.degree, joined))
