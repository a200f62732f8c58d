"""Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053): weight matrices are split in pairs.

The first matrix of a pair is split by rows of its weight (its outputs), the second by columns (its inputs). The
activations between them (heads, hidden units) never leave a rank. Each pair costs one all-reduce in forward and one in
backward. The embedding and the head are split by tokens: logits stay split, and the loss is computed from their
shards. Torch's own styles do the splitting; this file assigns them to modules.

Every expert of a mixture is such a pair too, and all are split in the same way. Routers read the whole residual stream
on every rank, so they agree on the routing.

Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198) divides positions between split matrices. Tensor
parallelism all-reduces a pair's outputs. Here a reduce-scatter gives each rank the sum for its part of the positions
only, and an all-gather precedes the next pair. Backward does the reverse. Both together have the traffic of the
all-reduce. Torch's own styles do the work; this file assigns them to modules. The input of a pair stays a `DTensor`
until its first product, so that its gradient, a partial sum, is never all-reduced.
"""

from collections.abc import Callable
from dataclasses import replace

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from assay.model import Block, Embedding
from assay.model.gpt import Head
from assay.model.moe import Experts
from assay.parallel.dtensor import local, placed_gradient, spread
from assay.parallel.rank_sums import gradient_norm
from assay.step.program import Program, Step

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


def split_matrices(program: Program, mesh: DeviceMesh) -> Program:
    """Split every block's matrices, the embedding and the head over a one-dimensional `mesh`."""
    divided = program.parallel.sequence_parts > 1
    for part in program.parts:
        for module in list(part.modules()):
            if isinstance(module, Block):
                parallelize_module(module, mesh, _block_plan(module) | (block_styles() if divided else {}))
            elif isinstance(module, Experts):
                _split_experts(module, mesh)
            elif isinstance(module, Head):
                parallelize_module(module, mesh, {"projection": _split_logits()})
                _return_plain_loss(module)
                if divided:
                    divide_norm(module, mesh)
            elif isinstance(module, Embedding) and divided:
                divide_embedding(module, mesh)
            elif isinstance(module, Embedding):
                parallelize_module(module.token, mesh, RowwiseParallel(input_layouts=Replicate()))
        _tie_again(part, program.weights.tied)

    def finish(step: Step) -> None:
        for _, parameter in step.named_parameters():
            placed_gradient(parameter)
        for gradient in _partial_gradients(step):
            dist.all_reduce(gradient, group=mesh.get_group())

    reduce = program.parallel.reduce_loss
    return replace(
        program,
        gradient_norm=gradient_norm,
        step_contexts=(*program.step_contexts, loss_parallel),
        finish_gradients=(*program.finish_gradients, finish),
        parallel=replace(program.parallel, reduce_loss=over_parts(reduce, mesh) if divided else reduce),
    )


def _block_plan(block: Block) -> dict[str, ParallelStyle]:
    first = ("attention.qkv", "mlp.up", "mlp.gate")
    second = ("attention.projection", "mlp.down")
    there = {name for name, _ in block.named_modules()}
    styles: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in first if name in there}
    return styles | {name: RowwiseParallel() for name in second if name in there}


def _split_logits() -> ParallelStyle:
    return ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)


def _split_experts(experts: Experts, mesh: DeviceMesh) -> None:
    spread(experts, mesh, {"gate": Shard(1), "up": Shard(1), "down": Shard(2)})
    experts.aligned = all(size % 8 == 0 for size in local(experts.up).shape[1:])
    inner = experts.forward

    def forward(rows: Tensor, ends: Tensor | None) -> Tensor:
        rows = DTensor.from_local(rows, mesh, [Replicate()]).to_local(grad_placements=[Partial()])
        return DTensor.from_local(inner(rows, ends), mesh, [Partial()]).full_tensor()

    experts.forward = forward  # type: ignore[method-assign]


def _return_plain_loss(head: Head) -> None:
    """Make the head return a plain tensor: code that uses the loss does not handle a `DTensor`."""
    inner = head.forward

    def forward(x: Tensor, targets: Tensor) -> Tensor:
        loss = inner(x, targets)
        return loss.full_tensor() if isinstance(loss, DTensor) else loss

    head.forward = forward  # type: ignore[method-assign]


def _tie_again(part: nn.Module, tied: tuple[tuple[str, str], ...]) -> None:
    """Tie weights anew, because splitting has made a separate `DTensor` for each name."""
    from assay.model import tie

    names = {name for name, _ in part.named_parameters(remove_duplicate=False)}
    tie(part, tuple(pair for pair in tied if names.issuperset(pair)))


def _partial_gradients(step: Step) -> list[Tensor]:
    """Return the gradients of query and key norms, which are replicated, but used on each rank's own heads only."""
    names = (".q_norm.weight", ".k_norm.weight")
    return [local(p.grad) for name, p in step.named_parameters() if name.endswith(names) and p.grad is not None]
