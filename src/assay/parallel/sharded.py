"""Replicas of a model, whole or in shards, by torch's own engine: hooks around modules, no wrapper, no renaming.

Every block is a group of its own and what remains another, so that one block's weights or gradients travel while the
next one computes. Gradients are summed, not averaged: each rank has divided its loss by the tokens of the whole batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from assay.model import Block, Head
from assay.parallel.batches import share_batch
from assay.parallel.norms import gradient_norm
from assay.step.program import Program, Step

Wrap = Callable[[nn.Module], Any]
"""Puts a module, and what is inside it and in no group yet, under the engine's hooks, in place."""


def replicas(program: Program, mesh: DeviceMesh, wrap: Wrap) -> Program:
    """Each rank of a one-dimensional `mesh` trains on its rows, and gradients are summed over the mesh."""
    for part in program.parts:
        for module in [one for one in part.modules() if isinstance(one, Block)]:
            wrap(module)
        wrap(part)
    for group in _managed(program.parts):
        group.set_gradient_divide_factor(1.0)
        group.set_force_sum_reduction_for_comms(True)
    shared = share_batch(program, mesh)
    return replace(shared, gradient_norm=gradient_norm, synchronize=_synchronize)


def shards(program: Program, mesh: DeviceMesh, *, reshard: bool) -> Program:
    """Replicas of which each rank holds a shard between uses."""
    return replicas(program, mesh, lambda module: fully_shard(module, mesh=mesh, reshard_after_forward=reshard))


def whole_replicas(program: Program, mesh: DeviceMesh) -> Program:
    """Replicas that hold all weights, and sum all gradients during backward."""
    return replicas(program, mesh, lambda module: replicate(module, mesh=mesh))


def in_bfloat16(program: Program, mesh: DeviceMesh, *, reshard: bool) -> Program:
    """Shards in float32, of which bfloat16 is gathered and computed with; gradients and the loss summed in float32."""
    for part in program.parts:
        for module in part.modules():
            if isinstance(module, Head):
                module.projection.register_forward_hook(lambda _, inputs, logits: logits.float())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return replicas(
        program, mesh, lambda module: fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    )


@contextmanager
def _synchronize(step: Step, last: bool) -> Iterator[None]:
    """Gradients travel in the last micro-batch's backward only."""
    for group in _managed(step.parts):
        group.set_requires_gradient_sync(last, recurse=False)
        group.set_is_last_backward(last)
    yield


def _managed(parts: tuple[nn.Module, ...]) -> list[FSDPModule]:
    return [module for part in parts for module in part.modules() if isinstance(module, FSDPModule)]
