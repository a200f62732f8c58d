"""Pipeline parallelism: stages on different ranks process micro-batches by torch's schedules.

A schedule replaces forward and backward of a whole step, which is one seam. It is made at first use, when other
techniques have wrapped the stages. Evaluation uses the same schedule, forwards only, in micro-batches of the training
shape, because the tensors sent between stages have a fixed shape. A tied weight has a copy on the first and on the last
stage. Both start equal and get the sum of both gradients, and so stay equal.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from assay.cost.pipeline_stages import Split
from assay.model import GPT
from assay.model.balance import scale_balance
from assay.model.loss import NOT_COUNTED
from assay.parallel.dtensor import local, placed_gradient
from assay.parallel.rank_sums import gradient_norm
from assay.step.program import MicroBatch, Program, Step


class DecoderStage(nn.Module):
    """Consecutive blocks of a decoder, under their names in the whole model."""

    def __init__(self, model: GPT, blocks: range) -> None:
        super().__init__()
        self.embedding = model.embedding if blocks.start == 0 else None
        self.blocks = nn.ModuleDict({str(index): model.blocks[index] for index in blocks})
        self.head = model.head if blocks.stop == len(model.blocks) else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return `[B, T, n_embd]`, or the summed loss on the last stage, from token ids or the previous stage's output.

        Raises `ValueError` if the last stage has no targets.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        if self.head is None:
            return x
        if targets is None:
            raise ValueError("the last stage needs the targets")
        loss: Tensor = self.head(x, targets)
        return loss


def cut(model: GPT, split: Split, rank: int) -> tuple[DecoderStage, ...]:
    """Return the stages of a rank as modules; the caller has checked that the split covers all blocks."""
    return tuple(DecoderStage(model, split.blocks_of(index, len(model.blocks))) for index in split.of(rank))


SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero-bubble": "ZBVZeroBubble"}
"""Names of schedules here and in torch."""

_FORWARD = ("F", "SEND_F", "RECV_F", "WAIT_SEND_F", "UNSHARD", "RESHARD")


def pipeline_program(program: Program, mesh: DeviceMesh, split: Split, schedule: str, micro_batches: int) -> Program:
    """Return the program of this rank's stages along a one-dimensional `mesh`.

    Raises `TypeError` if the program's only part is not a whole `GPT`.
    """
    (model,) = program.parts
    if not isinstance(model, GPT):
        raise TypeError("only a whole GPT can be cut into pipeline stages")
    line = _Line(mesh, split, SCHEDULES[schedule], program.device, model.config.n_embd)
    return replace(
        program,
        parts=cut(model, split, mesh.get_local_rank()),
        gradients=line.gradients,
        gradient_norm=gradient_norm,
        evaluate=line.evaluate,
        parallel=replace(program.parallel, reduce_loss=_over_stages(program.parallel.reduce_loss, line)),
        finish_gradients=(*program.finish_gradients, _TiedGradients(mesh, split, program.weights.tied)),
        micro_batches=program.micro_batches * micro_batches,
    )


@dataclass
class _Line:
    """This rank's part of the pipeline."""

    mesh: DeviceMesh
    split: Split
    schedule_name: str
    device: torch.device
    width: int
    """Last dimension of the tensors that are sent between stages."""
    tokens: int = 1
    """Number of tokens by which a loss is divided before backward."""
    rows: int = 0
    """Number of rows of a training micro-batch; 0 before the first one."""
    _schedules: dict[tuple[str, int], Any] = field(default_factory=dict)

    @property
    def has_first(self) -> bool:
        """True if the first stage is on this rank."""
        return 0 in self.split.of(self.mesh.get_local_rank())

    @property
    def has_last(self) -> bool:
        """True if the last stage, which computes the loss, is on this rank."""
        return self.split.count - 1 in self.split.of(self.mesh.get_local_rank())

    def gradients(self, step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        """Run forward and backward of all micro-batches → the summed loss, 0 if the last stage is on another rank."""
        self.tokens, self.rows = tokens, len(micro_batches[0][0])
        with scale_balance(1 / tokens):
            losses = self._run(step, micro_batches, "step")
        total = torch.zeros((), device=self.device)
        return total + sum(one.detach() for one in losses) * tokens if losses else total

    def evaluate(self, step: Step, batches: Iterable[MicroBatch]) -> tuple[float, int]:
        """Evaluate → (summed loss, number of targets), the same on every rank."""
        self.tokens = 1
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        with ExitStack() as modes, torch.no_grad():
            for part in step.parts:
                part.eval()
                modes.callback(part.train)
            for pieces in _full(batches, step, self.rows):
                losses = self._run(step, pieces, "eval")
                if self.has_last:
                    total[0] += sum(one.double() for one in losses)
                    total[1] += sum(int((targets != NOT_COUNTED).sum()) for _, targets in pieces)
        # The schedule holds a buffer for each micro-batch: those of an evaluation must not stay during training.
        self._schedules = {key: made for key, made in self._schedules.items() if key[0] != "eval"}
        dist.all_reduce(total, group=self.mesh.get_group())
        return float(total[0].item()), int(total[1].item())

    def _run(self, step: Step, micro_batches: Sequence[MicroBatch], how: str) -> list[Tensor]:
        ids, targets = (torch.cat(side) for side in zip(*micro_batches, strict=True))
        shape = micro_batches[0][0].shape
        losses: list[Tensor] = []
        given = (ids,) if self.has_first else ()
        wanted: dict[str, Any] = {"target": targets, "targets": targets, "losses": losses} if self.has_last else {}
        run: Callable[..., Any] = getattr(self._schedule(step, len(micro_batches), shape, how), how)
        with ExitStack() as contexts:
            for context in step.program.step_contexts:
                contexts.enter_context(context())
            run(*given, **wanted, return_outputs=False)
        return losses

    def _stage(self, part: nn.Module, index: int, shape: torch.Size, sequence_parts: int) -> PipelineStage:
        """Make a stage with known input and output shapes; else torch infers them by a forward on arbitrary numbers."""
        rows, length = shape
        between = _between(part, (rows, length // sequence_parts, self.width))
        ids = torch.empty(shape, dtype=torch.int64, device="meta")
        loss = torch.empty((), dtype=between.dtype, device="meta", requires_grad=True)
        return _Stage(
            part,
            index,
            self.split.count,
            self.device,
            input_args=ids if index == 0 else between,
            output_args=loss if index == self.split.count - 1 else between,
            group=self.mesh.get_group(),
        )

    def _schedule(self, step: Step, micro_batches: int, shape: torch.Size, how: str) -> Any:
        if (how, micro_batches) not in self._schedules:
            stages = [
                self._stage(part, index, shape, step.program.parallel.sequence_parts)
                for part, index in zip(step.parts, self.split.of(self.mesh.get_local_rank()), strict=True)
            ]
            kind = get_schedule_class(self.schedule_name)
            owned: Any = stages if self.split.per_rank > 1 else stages[0]
            made = kind(owned, micro_batches, loss_fn=lambda loss, _: loss / self.tokens, scale_grads=False)
            self._schedules[how, micro_batches] = made if how == "step" else _forwards_only(made)
        return self._schedules[how, micro_batches]


class _Stage(PipelineStage):
    """A stage that is not connected with its own rank, which has two neighbouring stages where their order turns.

    Torch 2.11 connects all neighbours before the first step, and Gloo cannot connect a rank with itself.
    """

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        return [one for one in super()._get_init_p2p_neighbors_ops() if one.group_peer != self.group_rank]


def _between(part: nn.Module, shape: tuple[int, int, int]) -> Tensor:
    """Return a meta tensor with the shape and dtype of the tensors that are sent between stages."""
    dtype = next(part.parameters()).dtype
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def _forwards_only(schedule: Any) -> Any:
    """Remove all backwards: torch's `eval` skips whole ones, but not those that a zero-bubble schedule has split."""
    for rank, actions in getattr(schedule, "pipeline_order_with_comms", {}).items():
        kept = [one for one in actions if one is not None and one.computation_type.value in _FORWARD]
        schedule.pipeline_order_with_comms[rank] = kept
    return schedule


def _full(batches: Iterable[MicroBatch], step: Step, rows: int) -> Iterator[list[MicroBatch]]:
    """Yield lists with a step's number of micro-batches, each of its shape; padded targets do not count."""
    parts, pieces = step.program.micro_batches, []
    for ids, targets in batches:
        rows = rows or len(ids)
        pieces.append(_padded(ids, targets, rows))
        if len(pieces) == parts:
            yield pieces
            pieces = []
    if pieces:
        ids, targets = pieces[0]
        yield pieces + [(ids, torch.full_like(targets, NOT_COUNTED))] * (parts - len(pieces))


def _padded(ids: Tensor, targets: Tensor, rows: int) -> MicroBatch:
    lacking = rows - len(ids)
    if lacking <= 0:
        return ids, targets
    filler = torch.full_like(targets[:1], NOT_COUNTED).expand(lacking, -1)
    return torch.cat([ids, ids[:1].expand(lacking, -1)]), torch.cat([targets, filler])


def _over_stages(inner: Callable[[Tensor], Tensor], line: _Line) -> Callable[[Tensor], Tensor]:
    """Sum over stages: the loss and the last block's norm of the last stage, the first block's norm of the first."""

    def reduce(sums: Tensor) -> Tensor:
        sums = inner(sums).clone()
        if sums.ndim and len(sums) > 1:
            sums[1] *= line.has_first
            sums[2:] *= line.has_last
        dist.all_reduce(sums, group=line.mesh.get_group())
        return sums

    return reduce


class _TiedGradients:
    """Sets the gradient of both copies of a tied weight to the sum of both gradients."""

    def __init__(self, mesh: DeviceMesh, split: Split, tied: tuple[tuple[str, str], ...]) -> None:
        self._names = tied
        self._alone = split.vee
        self._group = None if split.vee or not tied else _ends(mesh)

    def __call__(self, step: Step) -> None:
        held = dict(step.named_parameters())
        for alias, owner in self._names:
            found = [placed_gradient(held[name]) for name in (alias, owner) if name in held]
            gradients = [local(one) for one in found if one is not None]
            for gradient in gradients:
                if self._group is not None:
                    dist.all_reduce(gradient, group=self._group)
            if self._alone and len(gradients) == 2:
                gradients[0] += gradients[1]
                gradients[1].copy_(gradients[0])


def _ends(mesh: DeviceMesh) -> dist.ProcessGroup | None:
    """Return the group of the first and last rank of this rank's pipeline, None for other ranks.

    Every rank must take part in making all groups.
    """
    root = mesh._get_root_mesh()
    lines = root.mesh.movedim(list(root.mesh_dim_names or ()).index("pp"), -1).reshape(-1, mesh.size())
    mine = None
    for line in lines.tolist():
        group = dist.new_group([line[0], line[-1]])
        if dist.get_rank() in (line[0], line[-1]):
            mine = group
    return mine
