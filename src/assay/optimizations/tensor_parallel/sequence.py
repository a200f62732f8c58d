"""Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198): positions are divided between split matrices.

Tensor parallelism all-reduces a pair's outputs. Here a reduce-scatter gives each rank the sum for its part of the
positions only, and an all-gather precedes the next pair. Backward does the reverse. Both together have the traffic of
the all-reduce. Torch's own styles do the work; this file assigns them to modules. The input of a pair stays a
`DTensor` until its first product, so that its gradient, a partial sum, is never all-reduced.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from assay.model import Embedding
from assay.model.gpt import Head

_POSITIONS = Shard(1)
"""Placement of `[B, T, n_embd]` with divided positions."""


def block_styles() -> dict[str, ParallelStyle]:
    """Return a block's styles, which replace those by which tensor parallelism all-reduces a pair's outputs."""
    gathered = PrepareModuleInput(input_layouts=_POSITIONS, desired_input_layouts=Replicate())
    scattered = PrepareModuleInput(input_layouts=Partial(), desired_input_layouts=_POSITIONS, use_local_output=True)
    summands = RowwiseParallel(output_layouts=Partial(), use_local_output=False)
    norm = SequenceParallel(use_local_output=True)
    return {
        "attention_norm": norm,
        "attention": gathered,
        "attention.projection": summands,
        "attention.dropout": scattered,
        "mlp_norm": norm,
        "mlp": gathered,
        "mlp.down": summands,
        "mlp.dropout": scattered,
    }


def divide_embedding(embedding: Embedding, mesh: DeviceMesh) -> None:
    """Reduce-scatter the token embeddings, so that each rank has its positions, and add their learned positions."""
    if embedding.position is not None:
        distribute_module(embedding.position, mesh)
    styles = {
        "token": RowwiseParallel(input_layouts=Replicate(), output_layouts=_POSITIONS, use_local_output=False),
        "dropout": PrepareModuleInput(
            input_layouts=_POSITIONS, desired_input_layouts=_POSITIONS, use_local_output=True
        ),
    }
    parallelize_module(embedding, mesh, styles)


def divide_norm(head: Head, mesh: DeviceMesh) -> None:
    """Apply the last norm to each rank's positions, and gather them for the projection to the vocabulary."""
    parallelize_module(head, mesh, {"norm": SequenceParallel()})
    gathered = PrepareModuleOutput(
        output_layouts=_POSITIONS, desired_output_layouts=Replicate(), use_local_output=False
    )
    parallelize_module(head, mesh, {"norm": gathered})


def over_parts(inner: Callable[[Tensor], Tensor], mesh: DeviceMesh) -> Callable[[Tensor], Tensor]:
    """Sum the squared activation norms over ranks; the loss is already equal on every rank."""

    def reduce(sums: Tensor) -> Tensor:
        sums = inner(sums).clone()
        if sums.ndim and len(sums) > 1:
            dist.all_reduce(sums[1:], group=mesh.get_group())
        return sums

    return reduce
