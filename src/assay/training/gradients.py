"""Gradients in a plain step: compute them over the micro-batches, measure their norm, clip, update.

The loss of a step is Σ over its targets / number of targets. Each micro-batch's summed loss is therefore divided by the
tokens of the whole step, and micro-batches of any size add up to the same gradients. A loss of a user's own may leave
targets out, so how many it counts is known after the last forward. The gradients are then scaled once, unless one
micro-batch is the whole step, whose loss is divided at once. The host reads the norm before
the update. A step whose gradients are not finite leaves weights and gradients in place, so that the cause can be
named. If the figures of several steps are read together, the host does not read the norm. The clip factor is then
computed on the device, and the update follows without a check of the norm.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import Tensor

from assay.errors import Untrainable, UsageError
from assay.model.loss import Count
from assay.parallel.dtensor import local
from assay.step.program import MicroBatch, Program, Step

CLIP_EPSILON = 1e-6
"""Added to the norm by which clipping divides, as in `torch.nn.utils.clip_grad_norm_`."""


def cut(rows: Sequence[MicroBatch], parts: int) -> list[MicroBatch]:
    """Cut each of `rows` into `parts` equal micro-batches, in order. Raises `UsageError` if they do not divide."""
    if parts == 1:
        return list(rows)
    for ids, _ in rows:
        if len(ids) % parts:
            raise UsageError(
                f"a batch of {len(ids)} sequences cannot be cut into {parts} equal micro-batches; "
                f"choose training.batch_size as a multiple of {parts}"
            )
    return [pair for ids, targets in rows for pair in zip(ids.chunk(parts), targets.chunk(parts), strict=True)]


def summed_loss(step: Step, micro_batch: MicroBatch) -> Tensor:
    """Run one micro-batch through the parts; the last part also takes the targets and returns the summed loss."""
    x, targets = micro_batch
    *inner, last = step.parts
    for part in inner:
        x = part(x)
    loss: Tensor = last(x, targets)
    return loss


def gradients(step: Step, micro_batches: Sequence[MicroBatch], tokens: Count) -> Tensor:
    """Run forward and backward of every micro-batch → the summed loss of all, detached.

    Gradients accumulate in `parameter.grad`, divided by the number of targets that the loss counts. That is `tokens`,
    the number of targets of the whole step, unless the program has a tally. Raises `Untrainable` if a loss has no
    gradient.
    """
    program, tally = step.program, step.program.figures.tally
    total: Tensor | None = None
    counted: Count = 0
    for micro_batch in micro_batches:
        with ExitStack() as contexts:
            for context in program.step_contexts:
                contexts.enter_context(context())
            loss = summed_loss(step, micro_batch)
            if not loss.requires_grad:
                raise Untrainable("the model's loss has no gradient; compute it without detach() and torch.no_grad()")
            if tally is not None:
                counted = counted + tally.last
                tokens = tokens if len(micro_batches) > 1 else counted
            with program.parallel.synchronize(step, micro_batch is micro_batches[-1]):
                program.precision.loss_scale.scale(loss / tokens).backward()  # type: ignore[no-untyped-call]
        total = loss.detach() if total is None else total + loss.detach()
        del loss  # else its graph, and objects that wrappers attach to it, would live through the next forward
    if total is None:
        raise ValueError("a step needs at least one micro-batch")
    if tally is not None:
        tally.step = counted
        _share_out(step, tokens, counted)
    return total


@torch.no_grad()
def forwards(step: Step, micro_batches: Sequence[MicroBatch], tokens: Count) -> Tensor:
    """Run the forward of every micro-batch, as `gradients` does, and no backward → the summed loss of all."""
    tally, total = step.program.figures.tally, torch.zeros((), device=step.program.device)
    counted: Count = 0
    for micro_batch in micro_batches:
        with ExitStack() as contexts:
            for context in step.program.step_contexts:
                contexts.enter_context(context())
            total = total + summed_loss(step, micro_batch)
        counted = counted + (0 if tally is None else tally.last)
    if tally is not None:
        tally.step = counted
    return total


def counted_targets(program: Program, tokens: int) -> Count:
    """Return the targets that the losses of the last `gradients` counted, of the step's `tokens`."""
    tally = program.figures.tally
    return tokens if tally is None else tally.step


@torch.no_grad()
def _share_out(step: Step, tokens: Count, counted: Count) -> None:
    """Scale gradients that were divided by `tokens` as if they were divided by the `counted` targets."""
    if counted is tokens or (not isinstance(counted, Tensor) and counted == tokens):
        return
    among = counted.double() if isinstance(counted, Tensor) else torch.tensor(counted, dtype=torch.float64)
    torch._foreach_mul_(_gradients(step), tokens / among)


def not_synchronized(step: Step, last: bool) -> AbstractContextManager[None]:
    """Return an empty context: a backward on a single device communicates nothing."""
    return nullcontext()


def gradient_norm(step: Step) -> Tensor:
    """Return the Euclidean norm of all gradients, each weight counted once, as a float32 or wider scalar."""
    gradients = _gradients(step)
    widest = torch.promote_types(gradients[0].dtype, torch.float32)
    total: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2, dtype=widest)))
    return total


def updater(clip: float) -> Callable[[Step], Tensor]:
    """Return the plain update: unscale, measure, clip to the global norm `clip` (0: never), step, clear the gradients.

    The update returns the norm before clipping. If it is not finite and read now, weights and gradients stay.
    """

    def update(step: Step) -> Tensor:
        scale = step.program.precision.loss_scale
        scale.unscale(step)
        norm = step.program.gradient_norm(step)
        if not scale.skip(step, norm):
            if step.program.figures.read_every > 1:
                _clip_unread(step, norm, clip)
            elif not _clipped(step, norm, clip):
                return norm
            step.optimizer.step()
        for _, parameter in step.named_parameters():
            parameter.grad = None
        return norm

    return update


def _clipped(step: Step, norm: Tensor, clip: float) -> bool:
    """Clip the gradients if needed; True if the norm is finite."""
    size = norm.item()
    if 0 < clip < size < math.inf:
        _shrink(step, clip / (norm + CLIP_EPSILON))
    return math.isfinite(size)


def _clip_unread(step: Step, norm: Tensor, clip: float) -> None:
    """Like `_clipped`, without a host read: all gradients are multiplied, by 1 if no clipping is needed."""
    if clip > 0:
        _shrink(step, torch.where(norm > clip, clip / (norm + CLIP_EPSILON), 1.0))


@torch.no_grad()
def _shrink(step: Step, factor: Tensor) -> None:
    torch._foreach_mul_(_gradients(step), factor)


def _gradients(step: Step) -> list[Tensor]:
    """Return this rank's shards of all gradients."""
    return [local(parameter.grad) for _, parameter in step.named_parameters() if parameter.grad is not None]
