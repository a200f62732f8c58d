"""Context parallelism: each rank has its positions of all sequences; keys and values are sent (arXiv:2310.01889).

All layers but attention work on each position alone. Attention is causal, so a late position needs more work than an
early one. Each rank gets a chunk from the front and the mirrored chunk from the back (arXiv:2405.07719). Torch's load
balancer assigns the positions, and its ring attention, over the fused kernels of a GPU, relies on this assignment.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._attention import (
    _context_parallel_shard,
    _ContextParallel,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _HeadTailLoadBalancer,
)
from torch.distributed.tensor.parallel import parallelize_module

from assay.model import Attention, Embedding
from assay.parallel.dtensor import local
from assay.parallel.rank_sums import gradient_norm, sum_losses
from assay.step.program import MicroBatch, Program, Step

_POSITIONS_OF_HEADS = 2
"""Dimension of `[B, heads, T, d]` that is divided."""


def ring_attention(program: Program, mesh: DeviceMesh) -> Program:
    """Give every fused attention core the keys and values of all ranks of a one-dimensional `mesh`."""
    style = _ContextParallel(_POSITIONS_OF_HEADS, _ContextParallel.AttentionType.SDPA)
    for part in program.parts:
        for module in part.modules():
            if isinstance(module, Attention):
                parallelize_module(module, mesh, {"core": style})
    return replace(program, step_contexts=(*program.step_contexts, _ring))


@contextmanager
def _ring() -> Iterator[None]:
    _enable_context_parallel_dispatcher()
    try:
        yield
    finally:
        _disable_context_parallel_dispatcher()


def divide_positions(program: Program, mesh: DeviceMesh, context_length: int) -> Program:
    """Divide all layers but attention by position; losses and gradients are summed over `mesh`."""
    group = mesh.get_group()
    gradients_here = program.gradients

    def gradients(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        return gradients_here(step, own(micro_batches), tokens)

    def own(batches: Iterable[MicroBatch]) -> list[MicroBatch]:
        return [(_own(mesh, ids), _own(mesh, targets)) for ids, targets in batches]

    def finish(step: Step) -> None:
        for _, parameter in step.named_parameters():
            if parameter.grad is not None:
                dist.all_reduce(local(parameter.grad), group=group)

    positions = _own(mesh, torch.arange(context_length, device=program.device)[None])[0]
    for part in program.parts:
        for module in part.modules():
            if isinstance(module, Embedding | Attention):
                module.positions = positions
    return replace(
        sum_losses(program, mesh, own),
        gradients=gradients,
        gradient_norm=gradient_norm,
        finish_gradients=(*program.finish_gradients, finish),
    )


def _own(mesh: DeviceMesh, whole: Tensor) -> Tensor:
    """Return this rank's columns of a tensor `[B, T]`."""
    dealer = _HeadTailLoadBalancer(whole.size(1), mesh.size(), whole.device)
    (own,) = _context_parallel_shard(mesh, [whole], [1], dealer)
    if not isinstance(own, Tensor):
        raise TypeError("torch returned a mask in place of a tensor's shard")
    return own.clone()  # for a single row torch returns a view, which would keep the whole tensor alive
