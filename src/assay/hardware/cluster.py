"""Machines that are not here: accelerators from their datasheets, and nodes of them.

A datasheet's peak is for dense products in 16 bits, and its memory counts a GB as 10^9 bytes. Real products are slower,
and a plan needs the rate that they reach. For an A100 it is 200 TFLOP/s, with which plans match the steps of large
models in arXiv:2104.04473 and arXiv:2205.05198 (`api.plan`). For Hopper it is 550 TFLOP/s. With it a plan of
175 billion parameters has 47 % of model FLOPs utilization, the highest value that Megatron-LM's README gives for H100s.
That is one figure for all sizes and not a fit, so plans for Hopper are less certain. An H200 multiplies at the rate of
an H100 and has more memory.

Nodes are those of NVIDIA's DGX: NVLink inside, and one InfiniBand port for each accelerator.
"""

from collections.abc import Mapping

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen
from assay.errors import UsageError, suggestion
from assay.hardware.detect import Accelerator, Machine
from assay.hardware.devices import DEVICES
from assay.hardware.links import (
    INFINIBAND_HDR,
    INFINIBAND_NDR,
    NVLINK_A100,
    NVLINK_H100,
    NVLINK_H200,
    Link,
    Network,
)


class Datasheet(Frozen):
    """An accelerator and the links of its node, as the maker specifies them."""

    accelerator: Accelerator
    peak_flops: PositiveFloat
    """FLOP/s of dense 16-bit matrix products, from the datasheet."""
    products_flops: PositiveFloat
    """FLOP/s that large matrix products reach."""
    inner: Link
    outer: Link
    source: str


def _node(key: str, capability: tuple[int, int], products_flops: float, links: tuple[Link, Link]) -> Datasheet:
    found, (inner, outer) = DEVICES[key], links
    return Datasheet(
        accelerator=Accelerator(name=found.name, memory_bytes=found.memory_bytes, compute_capability=capability),
        peak_flops=found.half_flops,
        products_flops=products_flops,
        inner=inner,
        outer=outer,
        source=f"{found.source}, without sparsity",
    )


DATASHEETS: Mapping[str, Datasheet] = {
    "a100": _node("a100", (8, 0), 200e12, (NVLINK_A100, INFINIBAND_HDR)),
    "h100": _node("h100", (9, 0), 550e12, (NVLINK_H100, INFINIBAND_NDR)),
    "h200": _node("h200", (9, 0), 550e12, (NVLINK_H200, INFINIBAND_NDR)),
}
"""Datasheets by the name that a user gives."""


class Cluster(Frozen):
    """Nodes of equal size, with accelerators of one kind."""

    datasheet: Datasheet
    nodes: PositiveInt
    gpus_per_node: PositiveInt

    @property
    def size(self) -> int:
        """Number of accelerators."""
        return self.nodes * self.gpus_per_node

    @property
    def gpu(self) -> str:
        """The name that a user gives to the accelerator."""
        return next(name for name, sheet in DATASHEETS.items() if sheet == self.datasheet)

    @property
    def network(self) -> Network:
        """Links inside and between the nodes."""
        return Network(inner=self.datasheet.inner, outer=self.datasheet.outer, ranks_per_node=self.gpus_per_node)

    @property
    def machine(self) -> Machine:
        """One node as a `Machine`, with the facts that decide whether a technique is available."""
        accelerators = (self.datasheet.accelerator,) * self.gpus_per_node
        return Machine(processor="unknown", cores=self.gpus_per_node, memory_bytes=2**63, accelerators=accelerators)

    def __str__(self) -> str:
        count = f"{self.nodes} × " if self.nodes > 1 else ""
        return f"{count}{self.gpus_per_node} {self.datasheet.accelerator.name}"


def cluster(gpu: str, nodes: int, gpus_per_node: int) -> Cluster:
    """Return the cluster that a user names. Raises `UsageError` for an unknown GPU or an impossible size."""
    found = DATASHEETS.get(gpu.lower())
    if found is None:
        hint = suggestion(gpu, list(DATASHEETS)) or f"; choose from {', '.join(DATASHEETS)}"
        raise UsageError(f"no datasheet of a GPU {gpu!r} is known{hint}")
    if nodes < 1 or gpus_per_node < 1 or nodes * gpus_per_node > 1_000_000:
        raise UsageError(
            f"nodes={nodes} of gpus_per_node={gpus_per_node} is not possible: "
            "give at least one of each, and at most a million GPUs in all"
        )
    return Cluster(datasheet=found, nodes=nodes, gpus_per_node=gpus_per_node)
