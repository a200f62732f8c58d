"""Sums over ranks that divide a batch: the loss of a step, and the loss of an evaluation."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from assay.step.program import MicroBatch, Program, Step

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
