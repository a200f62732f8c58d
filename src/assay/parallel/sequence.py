"""Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198): between split matrices, a part of the positions.

Where tensor parallelism sums a pair's outputs on every rank, here each rank gets the sum for its part of the positions
only, a reduce-scatter, and the parts are gathered before the next pair; backward does the same the other way round. The
two together send what the sum sent. Torch's own styles do it; here is only which module takes which. The input of a
pair stays a spread tensor until its first product, so that its gradient, summands of a whole, is never made whole.
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
"""Of `[B, T, n_embd]`."""


def block_styles() -> dict[str, ParallelStyle]:
    """For a block, in the place of those with which tensor parallelism sums a pair's outputs on every rank."""
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
    """Each rank gets its positions of the sum over the ranks' tokens, and adds what is learned of those positions."""
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
    """The last norm works on parts, and the projection to the vocabulary gets them together."""
    parallelize_module(head, mesh, {"norm": SequenceParallel()})
    gathered = PrepareModuleOutput(
        output_layouts=_POSITIONS, desired_output_layouts=Replicate(), use_local_output=False
    )
    parallelize_module(head, mesh, {"norm": gathered})


def over_parts(inner: Callable[[Tensor], Tensor], mesh: DeviceMesh) -> Callable[[Tensor], Tensor]:
    """Every rank knows the loss; the squared activation norms beside it are of its part only."""

    def reduce(sums: Tensor) -> Tensor:
        sums = inner(sums).clone()
        if sums.ndim and len(sums) > 1:
            dist.all_reduce(sums[1:], group=mesh.get_group())
        return sums

    return reduce
