"""One optimizer step up to the moment when all of it is queued: its figures lie on the device, and nobody read them.

To read them the host must wait until the device is through with the step, and cannot queue the next one meanwhile. So
a step is two things: what is done here, and the reading (`loop.read`), which may come later and for many steps at once.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.step.program import Step
from assay.training.batches import micro_batches_of
from assay.training.divergence import gradients_remain
from assay.training.probes import ActivationNorms


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was done, without what only its figures tell."""

    step: int
    learning_rate: float
    loss_scale: float
    tokens: int
    seconds: float
    """Until all was queued."""
    data_seconds: float
    """Of them, until the batch was there."""
    left_out: bool
    """Where the figures turn out not to be finite, the update was left out."""
    figures: Tensor
    """Loss, norm of the gradients, squared activation norms: a vector on the device."""


def take(step: Step, index: int, probes: ActivationNorms | None = None) -> Taken:
    """Do the optimizer step `index`. Raises `Unread` before it has done anything, and whatever other seams raise."""
    start = time.perf_counter()
    program = step.program
    rate = program.schedule(index)
    for group in step.optimizer.param_groups:
        group["lr"] = rate
    scale = program.loss_scale.value
    asked = time.perf_counter()
    micro_batches = micro_batches_of(program, index)
    data_seconds = time.perf_counter() - asked
    tokens = sum(targets.numel() for _, targets in micro_batches) * program.share[1]
    summed = program.gradients(step, micro_batches, tokens)
    for finish in program.finish_gradients:
        finish(step)
    norm = program.update(step)
    watched = [norm.square() for norm in probes.take()] if probes else []
    sums = program.reduce_loss(torch.stack([summed, *watched]))
    return Taken(
        step=index,
        learning_rate=rate,
        loss_scale=scale,
        tokens=tokens,
        figures=torch.stack([sums[0] / tokens, norm, *sums[1:]]),
        left_out=program.loss_scale.skips and not gradients_remain(step),
        seconds=time.perf_counter() - start,
        data_seconds=data_seconds,
    )
