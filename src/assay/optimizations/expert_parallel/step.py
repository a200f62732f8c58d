"""Experts divided among ranks that share a batch: rows are sent to their experts and back (GShard, arXiv:2006.16668).

Rank r of n owns experts r·E/n to (r+1)·E/n − 1, whole. Its tokens' rows are already sorted by expert, so the rows for
one rank are contiguous. Two all-to-alls send them: first the number of rows for each expert, then the rows. Received
rows are sorted by expert; results are sent back in reverse. Backward sends gradients over the same all-to-alls, so an
expert's gradient is the sum over all tokens of the batch and needs no further reduction.

Only the sender knows the number of rows, and torch's all-to-all needs the numbers on the host: one read per layer and
forward. A capacity would make them constant. But its places are counted over the tokens of one forward, which are
divided among ranks. Other tokens would be dropped than on one device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard

from assay.model.moe import Experts
from assay.parallel.dtensor import spread
from assay.parallel.rank_sums import gradient_norm
from assay.step.program import Program


def divide_experts(program: Program, mesh: DeviceMesh) -> Program:
    """Shard every layer's experts over a one-dimensional `mesh` whose ranks share the batch."""
    for part in program.parts:
        for module in part.modules():
            if isinstance(module, Experts):
                spread(module, mesh, {name: Shard(0) for name, _ in module.named_parameters()})
                _travel(module, mesh)
    return replace(program, gradient_norm=gradient_norm)


def _travel(experts: Experts, mesh: DeviceMesh) -> None:
    inner = experts.forward

    def forward(rows: Tensor, ends: Tensor | None) -> Tensor:
        if ends is None:
            raise ValueError("experts with a capacity cannot exchange tokens between ranks")
        journey = _Journey.plan(ends, mesh)
        return journey.back(inner(journey.there(rows), journey.ends))

    experts.forward = forward  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Journey:
    """Exchange of one forward's rows between the ranks of their tokens and the ranks of their experts."""

    mesh: DeviceMesh
    sent: Sequence[int]
    """Number of rows sent to each rank."""
    received: Sequence[int]
    """Number of rows received from each rank."""
    order: Tensor
    """Permutation that sorts the received rows by expert."""
    ends: Tensor
    """End of the rows of each of this rank's experts, int32."""

    @classmethod
    def plan(cls, ends: Tensor, mesh: DeviceMesh) -> "_Journey":
        """Plan the exchange of rows sorted by expert; `ends [E]` are the ends of each expert's rows."""
        counts = ends.long().diff(prepend=ends.new_zeros(1).long())
        arriving = all_to_all_single(counts, None, None, mesh)
        leaving, arriving = counts.view(mesh.size(), -1), (arriving + 0).view(mesh.size(), -1)
        sent, received = torch.stack((leaving.sum(1), arriving.sum(1))).tolist()
        own = torch.arange(arriving.size(1), device=ends.device).repeat(mesh.size())
        expert = own.repeat_interleave(arriving.flatten(), output_size=sum(received))
        own_ends = arriving.sum(0).cumsum(0).to(torch.int32)
        return cls(mesh, sent, received, expert.argsort(stable=True), own_ends)

    def there(self, rows: Tensor) -> Tensor:
        """Send this rank's rows, sorted by all experts → all ranks' rows, sorted by this rank's experts."""
        arrived: Tensor = all_to_all_single_autograd(rows, list(self.received), list(self.sent), self.mesh)
        return arrived.index_select(0, self.order)

    def back(self, results: Tensor) -> Tensor:
        """Send the results back, in the order of the rows that `there` was given."""
        leaving = results.index_select(0, self.order.argsort())
        arrived: Tensor = all_to_all_single_autograd(leaving, list(self.sent), list(self.received), self.mesh)
        return arrived
