"""Replicas of a model, whole or sharded, by torch's own engine: hooks around modules, no wrapper, no renaming.

Every block is a group, and the rest of the model is another. One block's weights or gradients are thus communicated
while the next block computes. Gradients are summed, not averaged: each rank has divided its loss by the tokens of the
whole batch. Weights that are already divided among these ranks, such as experts, are excluded: each has one owner.

A batch is divided among the ranks of an axis. Each takes its rows, and sums over rows become sums over ranks.

In evaluation every rank must run the same number of forwards, or the collectives inside would wait for ever. Each
batch is therefore dealt out row by row, and a rank without a row computes one row whose targets do not count.

A router's balance is a product of two means over the batch, so it cannot be summed over ranks. Its counts are summed
in each forward instead, a few numbers per layer.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from assay.model import Block, MixtureMLP
from assay.model.loss import NOT_COUNTED
from assay.model.narrow import lift_logits
from assay.parallel.rank_sums import gradient_norm, sum_losses
from assay.step.program import MicroBatch, Program, Step
from assay.step.stand_in_update import norm_on_device


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


Wrap = Callable[[nn.Module, set[nn.Parameter]], Any]
"""Adds the engine's hooks to a module in place. Its group is all its parameters that are in no other group yet, without
those in the set."""


def replicas(program: Program, mesh: DeviceMesh, wrap: Wrap) -> Program:
    """Train on each rank's rows along a one-dimensional `mesh`, and sum gradients over the mesh."""
    for part in program.parts:
        owned = {one for one in part.parameters() if _lies_on(one, mesh)}
        for module in [one for one in part.modules() if isinstance(one, Block)]:
            wrap(module, owned)
        wrap(part, owned)
    for group in _managed(program.parts):
        group.set_gradient_divide_factor(1.0)
        group.set_force_sum_reduction_for_comms(True)
    shared = share_batch(program, mesh)
    return replace(shared, gradient_norm=gradient_norm, parallel=replace(shared.parallel, synchronize=_synchronize))


def shards(
    program: Program, mesh: DeviceMesh, *, reshard: bool, mixed_precision: bool = False, offload: bool = False
) -> Program:
    """Shard the replicas: each rank holds a float32 shard between uses, on the host if offloaded.

    `reshard` frees gathered weights after forward. `mixed_precision` computes in bfloat16 and reduces in float32.
    """
    precision, place = MixedPrecisionPolicy(), OffloadPolicy()
    if mixed_precision:
        for part in program.parts:
            lift_logits(part)
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if offload:
        place = CPUOffloadPolicy(pin_memory=program.device.type == "cuda")
        weights = replace(program.weights, rest=torch.device("cpu"))
        program = replace(program, weights=weights, update=norm_on_device(program.update))

    def wrap(module: nn.Module, apart: set[nn.Parameter]) -> Any:
        return fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=reshard,
            mp_policy=precision,
            offload_policy=place,
            ignored_params=apart,
        )

    return replicas(program, mesh, wrap)


def whole_replicas(program: Program, mesh: DeviceMesh) -> Program:
    """Make replicas that hold all weights, and all-reduce gradients during backward."""
    return replicas(program, mesh, lambda module, apart: replicate(module, mesh=mesh, ignored_params=apart))


def _lies_on(parameter: nn.Parameter, mesh: DeviceMesh) -> bool:
    return isinstance(parameter, DTensor) and parameter.device_mesh == mesh


@contextmanager
def _synchronize(step: Step, last: bool) -> Iterator[None]:
    """Communicate gradients in the last micro-batch's backward only."""
    for group in _managed(step.parts):
        group.set_requires_gradient_sync(last, recurse=False)
        group.set_is_last_backward(last)
    yield


def _managed(parts: tuple[nn.Module, ...]) -> list[FSDPModule]:
    return [module for part in parts for module in part.modules() if isinstance(module, FSDPModule)]
