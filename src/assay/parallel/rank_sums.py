"""Sums over ranks: the global gradient norm of sharded weights, and the loss of a step or an evaluation.

In a norm every element is counted once. Squares are summed on each rank over its own shards, and then across the axes
along which these are sharded. A replicated gradient is whole on every rank, so it is not summed across that axis.
Weights with different placements are summed separately, because they are reduced across different axes
(arXiv:2104.04473 clips by the same rule).

A loss is summed over the ranks that divide a batch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from assay.parallel.dtensor import divided_over, is_spread, local
from assay.step.program import MicroBatch, Program, Step

_Groups = tuple[dist.ProcessGroup, ...]


def gradient_norm(step: Step) -> Tensor:
    """Return the Euclidean norm over all ranks: a float32 or wider scalar, equal on every rank.

    Raises `ValueError` if there are no gradients.
    """
    total: Tensor | None = None
    for groups, gradients in _by_groups(_own(step)).items():
        squared = _squared(gradients)
        for group in groups:
            dist.all_reduce(squared, group=group)
        total = squared if total is None else total + squared
    if total is None:
        raise ValueError("there are no gradients to measure")
    mesh = step.program.parallel.mesh
    if mesh is not None and mesh.size((mesh.mesh_dim_names or ()).index("pp")) > 1:
        dist.all_reduce(total, group=mesh.get_group("pp"))
    return total.sqrt()


def _own(step: Step) -> Iterator[Tensor]:
    """Yield the gradients of this rank's weights, without copies of tied weights, which are counted at their owner."""
    aliases = {alias for alias, _ in step.program.weights.tied}
    return (p.grad for name, p in step.named_parameters() if p.grad is not None and name not in aliases)


def _by_groups(gradients: Iterable[Tensor]) -> dict[_Groups, list[Tensor]]:
    found: dict[_Groups, list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        found[_split_over(gradient)].append(local(gradient))
    return found


def _split_over(gradient: Tensor) -> _Groups:
    if not is_spread(gradient):
        return ()
    return tuple(gradient.device_mesh.get_group(axis) for axis in divided_over(gradient))


def _squared(gradients: list[Tensor]) -> Tensor:
    widest = torch.promote_types(gradients[0].dtype, torch.float32)
    return torch.stack(torch._foreach_norm(gradients, 2, dtype=widest)).square().sum()


Batches = Iterable[MicroBatch]


def sum_losses(program: Program, mesh: DeviceMesh, own: Callable[[Batches], Batches]) -> Program:
    """Evaluate each rank's `own` part of every batch, and sum all losses over a one-dimensional `mesh`."""
    group = mesh.get_group()
    evaluate_here, reduce_here = program.evaluate, program.parallel.reduce_loss

    def evaluate(step: Step, batches: Batches) -> tuple[float, int]:
        loss, targets = evaluate_here(step, own(batches))
        total = torch.tensor([loss, targets], dtype=torch.float64, device=program.device)
        dist.all_reduce(total, group=group)
        return float(total[0].item()), int(total[1].item())

    def reduce_loss(sums: Tensor) -> Tensor:
        total = reduce_here(sums).clone()
        dist.all_reduce(total, group=group)
        return total

    return replace(program, evaluate=evaluate, parallel=replace(program.parallel, reduce_loss=reduce_loss))
