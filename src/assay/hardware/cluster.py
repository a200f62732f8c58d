"""Machines that nobody here has: accelerators by their datasheets, and nodes full of them.

A datasheet's peak is of dense products in 16 bits, and its memory counts a GB as 10^9 bytes. What products reach is
less, and a plan needs that rate: for an A100 the 200 TFLOP/s with which plans meet the steps of large models in
arXiv:2104.04473 and arXiv:2205.05198 (see `estimate.plan`). For Hopper it is 550 TFLOP/s, with which a plan of 175
billion parameters comes to the 47 % of model FLOPs utilization that Megatron-LM's README gives as the most it reaches
on H100s. That is one figure for all sizes and no fit, so plans for Hopper are the less certain ones. An H200 multiplies
like an H100 and has more memory.

Nodes are those of NVIDIA's DGX: NVLink inside, and one port of InfiniBand for each accelerator.
"""

from collections.abc import Mapping

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen
from assay.errors import UsageError, meant
from assay.hardware.links import (
    INFINIBAND_HDR,
    INFINIBAND_NDR,
    NVLINK_A100,
    NVLINK_H100,
    NVLINK_H200,
    Link,
    Network,
)
from assay.hardware.machine import Accelerator, Machine


class Datasheet(Frozen):
    """An accelerator as its maker sells it, in the node that its maker sells."""

    accelerator: Accelerator
    peak_flops: PositiveFloat
    """FLOP/s of dense products in 16 bits."""
    products_flops: PositiveFloat
    """FLOP/s that large products reach."""
    inner: Link
    outer: Link
    source: str


def _nvidia(
    name: str, memory_bytes: float, capability: tuple[int, int], flops: tuple[float, float], links: tuple[Link, Link]
) -> Datasheet:
    accelerator = Accelerator(name=name, memory_bytes=int(memory_bytes), compute_capability=capability)
    (peak, products), (inner, outer) = flops, links
    return Datasheet(
        accelerator=accelerator,
        peak_flops=peak,
        products_flops=products,
        inner=inner,
        outer=outer,
        source=f"NVIDIA {name} datasheet, SXM, without sparsity",
    )


_AMPERE, _HOPPER = (312e12, 200e12), (989e12, 550e12)

DATASHEETS: Mapping[str, Datasheet] = {
    "a100": _nvidia("A100 80 GB", 80e9, (8, 0), _AMPERE, (NVLINK_A100, INFINIBAND_HDR)),
    "h100": _nvidia("H100 80 GB", 80e9, (9, 0), _HOPPER, (NVLINK_H100, INFINIBAND_NDR)),
    "h200": _nvidia("H200 141 GB", 141e9, (9, 0), _HOPPER, (NVLINK_H200, INFINIBAND_NDR)),
}
"""By the name that a user gives."""


class Cluster(Frozen):
    """So many nodes of so many accelerators of one kind."""

    datasheet: Datasheet
    nodes: PositiveInt
    gpus_per_node: PositiveInt

    @property
    def size(self) -> int:
        """How many accelerators there are."""
        return self.nodes * self.gpus_per_node

    @property
    def network(self) -> Network:
        """What connects them."""
        return Network(inner=self.datasheet.inner, outer=self.datasheet.outer, ranks_per_node=self.gpus_per_node)

    @property
    def machine(self) -> Machine:
        """One node, as far as a technique asks whether it can be had there."""
        accelerators = (self.datasheet.accelerator,) * self.gpus_per_node
        return Machine(processor="unknown", cores=self.gpus_per_node, memory_bytes=2**63, accelerators=accelerators)

    def __str__(self) -> str:
        count = f"{self.nodes} × " if self.nodes > 1 else ""
        return f"{count}{self.gpus_per_node} {self.datasheet.accelerator.name}"


def cluster(gpu: str, nodes: int, gpus_per_node: int) -> Cluster:
    """The cluster that a user names. Raises `UsageError` where there is no such one."""
    found = DATASHEETS.get(gpu.lower())
    if found is None:
        hint = meant(gpu, list(DATASHEETS)) or f"; there are {', '.join(DATASHEETS)}"
        raise UsageError(f"no datasheet of a GPU {gpu!r} is known{hint}")
    if nodes < 1 or gpus_per_node < 1 or nodes * gpus_per_node > 1_000_000:
        raise UsageError(
            f"nodes={nodes} of gpus_per_node={gpus_per_node} is not possible: "
            "take at least one of each, and at most a million GPUs together"
        )
    return Cluster(datasheet=found, nodes=nodes, gpus_per_node=gpus_per_node)
