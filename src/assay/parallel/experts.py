"""Experts divided among ranks that share a batch: rows travel to their experts and back (GShard, arXiv:2006.16668).

Rank r of n owns experts r·E/n to (r+1)·E/n − 1, whole. Its tokens' rows are sorted by expert already, so those for one
rank lie together. Two exchanges carry them: how many rows go to each expert, then the rows. What arrives is sorted by
expert; results go back the same way. Backward sends gradients along the same roads, so an expert's gradient is the sum
over all tokens of the batch and is reduced no further.

How many rows come is known to the sender only, and torch's exchange wants the numbers on the host: one read a forward
of a layer. A capacity would make them constant, but its places are counted over the tokens of one forward, of which
each rank has a part: other tokens would be dropped than on one device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard

from assay.model.moe import Experts
from assay.parallel.norms import gradient_norm
from assay.parallel.shards import spread
from assay.step.program import Program


def divide_experts(program: Program, mesh: DeviceMesh) -> Program:
    """Spread every layer's experts over a one-dimensional `mesh` whose ranks share the batch."""
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
            raise ValueError("experts with a capacity stay on their rank")
        journey = _Journey.plan(ends, mesh)
        return journey.back(inner(journey.there(rows), journey.ends))

    experts.forward = forward  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Journey:
    """The rows of one forward, between the ranks of their tokens and those of their experts."""

    mesh: DeviceMesh
    sent: Sequence[int]
    """Rows to each rank."""
    received: Sequence[int]
    """Rows from each rank."""
    order: Tensor
    """Of what was received: its places once it is sorted by expert."""
    ends: Tensor
    """Where each own expert's rows end, int32."""

    @classmethod
    def plan(cls, ends: Tensor, mesh: DeviceMesh) -> "_Journey":
        """For rows sorted by expert, `ends [E]` where each expert's end."""
        counts = ends.long().diff(prepend=ends.new_zeros(1).long())
        arriving = all_to_all_single(counts, None, None, mesh)
        leaving, arriving = counts.view(mesh.size(), -1), (arriving + 0).view(mesh.size(), -1)
        sent, received = torch.stack((leaving.sum(1), arriving.sum(1))).tolist()
        own = torch.arange(arriving.size(1), device=ends.device).repeat(mesh.size())
        expert = own.repeat_interleave(arriving.flatten(), output_size=sum(received))
        own_ends = arriving.sum(0).cumsum(0).to(torch.int32)
        return cls(mesh, sent, received, expert.argsort(stable=True), own_ends)

    def there(self, rows: Tensor) -> Tensor:
        """This rank's rows by expert of all → all ranks' rows by expert of this one."""
        arrived: Tensor = all_to_all_single_autograd(rows, list(self.received), list(self.sent), self.mesh)
        return arrived.index_select(0, self.order)

    def back(self, results: Tensor) -> Tensor:
        """The other way."""
        leaving = results.index_select(0, self.order.argsort())
        arrived: Tensor = all_to_all_single_autograd(leaving, list(self.sent), list(self.received), self.mesh)
        return arrived
