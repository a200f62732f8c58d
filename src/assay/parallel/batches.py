"""A batch divided among the ranks of an axis: each takes its rows, and sums over rows become sums over ranks.

In evaluation every rank must run the same number of forwards, or the collectives inside would wait for ever. Each
batch is therefore dealt out row by row, and a rank without a row computes one row whose targets do not count.

A router's balance is a product of two means over the batch, so it cannot be summed over ranks. Its counts are summed
in each forward instead, a few numbers per layer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import DeviceMesh

from assay.model import MixtureMLP
from assay.model.loss import NOT_COUNTED
from assay.parallel.loss_reduction import sum_losses
from assay.step.program import MicroBatch, Program


def share_batch(program: Program, mesh: DeviceMesh) -> Program:
    """Divide every batch among the ranks of a one-dimensional `mesh`, in training and in evaluation."""
    place, count = mesh.get_local_rank(), mesh.size()
    for part in program.parts:
        for module in part.modules():
            if isinstance(module, MixtureMLP):
                _pool(module, mesh)
    index, before = program.parallel.share
    share = (index * count + place, before * count)
    shared = sum_losses(program, mesh, lambda batches: _dealt(batches, place, count))
    return replace(shared, parallel=replace(shared.parallel, share=share))


def _pool(mixture: MixtureMLP, mesh: DeviceMesh) -> None:
    inner = mixture.pooled
    mixture.pooled = lambda counts: all_reduce(inner(counts), "sum", mesh)


def _dealt(batches: Iterable[MicroBatch], place: int, count: int) -> Iterator[MicroBatch]:
    for ids, targets in batches:
        mine = slice(place, None, count)
        if place < len(ids):
            yield ids[mine], targets[mine]
        else:
            yield ids[:1], torch.full_like(targets[:1], NOT_COUNTED)
