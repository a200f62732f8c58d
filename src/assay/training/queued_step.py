"""One optimizer step up to the moment when all of it is queued: its figures are on the device, and are not yet read.

The read makes the host wait until the device has finished the step, so it cannot queue the next one meanwhile.
Therefore taking a step (here) and reading it (`loop.read`) are separate; one read may serve many steps.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.step.device_queue import mark
from assay.step.program import Step
from assay.training.batches import micro_batches_of
from assay.training.divergence import gradients_remain
from assay.training.gradients import counted_targets
from assay.training.probes import ActivationNorms


@dataclass(frozen=True, slots=True)
class Taken:
    """A queued step whose figures are not yet read."""

    step: int
    learning_rate: float
    loss_scale: float
    targets: int
    """Targets of the step's rows."""
    tokens: float | None
    """Targets that the loss counted; None: their number is the last figure."""
    began: float
    """Reading of the clock before the batch."""
    queued: float
    """Reading of the clock when all was queued."""
    seconds: float
    """Seconds until all was queued, without those of an instrument."""
    data_seconds: float
    """Part of `seconds` until the host had the batch."""
    left_out: bool
    """True if figures that are not finite mean a skipped update."""
    begun: torch.cuda.Event | None
    """Event before the step in the device's queue; None on a CPU."""
    figures: Tensor
    """Loss per token, gradient norm, squared activation norms, counted targets if they are on the device: a vector."""


def take(step: Step, index: int, probes: ActivationNorms | None = None) -> Taken:
    """Queue the optimizer step `index`.

    Raises `Unread` before the step has changed any weight or gradient, and any error of the program's other seams.
    """
    start = time.perf_counter()
    program = step.program
    begun = mark(program.device)
    rate = program.schedule(index)
    for group in step.optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)
    scale = program.precision.loss_scale.value
    micro_batches = micro_batches_of(program, index)
    data_seconds = time.perf_counter() - start  # a batch may also be made before the step asks for it
    targets = sum(rows.numel() for _, rows in micro_batches) * program.parallel.share[1]
    summed = program.gradients(step, micro_batches, targets)
    tokens = counted_targets(program, targets)
    for finish in program.finish_gradients:
        finish(step)
    norm = program.update(step)
    watched = [norm.square() for norm in probes.take()] if probes else []
    sums = program.parallel.reduce_loss(torch.stack([summed, *watched]))
    unread = [tokens.double()] if isinstance(tokens, Tensor) else []  # float32 lacks odd numbers above 2²⁴
    figures = torch.stack([sums[0] / tokens, norm, *sums[1:], *unread])
    queued = time.perf_counter()
    return Taken(
        step=index,
        learning_rate=rate,
        loss_scale=scale,
        targets=targets,
        tokens=None if isinstance(tokens, Tensor) else tokens,
        figures=figures,
        left_out=program.precision.loss_scale.skips and not gradients_remain(step),
        began=start,
        queued=queued,
        seconds=queued - start,
        data_seconds=data_seconds,
        begun=begun,
    )
