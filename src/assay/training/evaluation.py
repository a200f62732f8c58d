"""Loss on held-out text: the same windows every time, dropout off, no gradients, the run's own forward.

The loss is Σ over all targets / number of targets, so it does not depend on how windows are grouped into batches.
If the windows are a sample of the split, the loss has a standard error. It is estimated from the differences between
up to 10 consecutive groups of batches, with group sums Lg of losses and Tg of targets:

    √(G/(G−1) · Σ (Lg − loss·Tg)² · (1 − share)) / T

This is the ratio estimator of cluster sampling, corrected for a finite split (Cochran 1977, chapter 6).
Perplexity is e^loss, per token, and comparable only under one tokenizer. Bits per byte are comparable across
tokenizers: loss / ln 2 / UTF-8 bytes per token of the held-out text.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import torch
from torch import Tensor

from assay.errors import UsageError
from assay.model.loss import NOT_COUNTED, Count, host
from assay.step.program import MicroBatch, Step
from assay.training.gradients import summed_loss


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation."""

    step: int
    """Number of optimizer steps done before it."""
    loss: float
    """Mean loss in nats per token."""
    targets: int
    """Number of tokens that were predicted."""
    bytes_per_token: float | None
    """UTF-8 bytes per token of the held-out text; None: the batches are no text."""
    split_targets: int = 0
    """Number of tokens of the held-out text that could be predicted; 0 if unknown."""
    standard_error: float | None = None
    """Standard error of the loss as an estimate for the whole split; 0 if all of it is read, None for one group."""
    groups: tuple[tuple[float, float], ...] = ()
    """Summed loss and number of targets of each group of batches, in order; empty if it was read from a checkpoint."""

    def facts(self) -> dict[str, int | float | None]:
        """Return the figures that an event records."""
        figures = ("step", "loss", "perplexity", "bits_per_byte", "targets", "split_targets", "standard_error")
        return {name: getattr(self, name) for name in figures}

    @property
    def perplexity(self) -> float | None:
        """Return e^loss, per token; infinite if it does not fit a float, None without text."""
        if self.bytes_per_token is None:
            return None
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """Return the loss as bits per UTF-8 byte of the text; None without text."""
        if self.bytes_per_token is None:
            return None
        return self.loss / math.log(2) / self.bytes_per_token


@dataclass(frozen=True)
class EvaluationSample:
    """Size of the evaluations' sample and of its split."""

    batches: int = 0
    """Number of validation batches; 0 if unknown."""
    split_targets: int = 0
    """Number of tokens of the whole split that could be predicted; 0 if unknown."""
    whole: bool = False
    """True if the batches are the whole split, whose targets are then counted in an evaluation."""


UNKNOWN = EvaluationSample()

Windows = Callable[[], Iterable[MicroBatch]]
"""Each call returns the validation batches from the first on."""

_GROUPS = 10


def evaluate(
    step: Step, windows: Windows, bytes_per_token: float | None, done: int, sample: EvaluationSample = UNKNOWN
) -> Evaluation:
    """Evaluate after `done` steps. Batches are cut into micro-batches like training's, to take no more memory."""
    sums = [
        step.program.evaluate(step, _cut(group, step.program.micro_batches))
        for group in _groups(windows(), _group_size(sample))
    ]
    targets = sum(count for _, count in sums)
    if any(not 0 <= count < math.inf for _, count in sums):
        raise UsageError(f"the loss counted {targets:g} targets of the validation batches; a count is zero or more")
    split = targets if sample.whole else sample.split_targets
    return Evaluation(
        step=done,
        loss=sum(loss for loss, _ in sums) / targets if targets else math.nan,
        targets=round(targets),
        bytes_per_token=bytes_per_token,
        split_targets=round(split),
        standard_error=standard_error(sums, targets / split if split else 1.0),
        groups=tuple(sums),
    )


def group_of(windows: Windows, sample: EvaluationSample, number: int) -> list[MicroBatch]:
    """Return the batches of one group of an evaluation, from 0."""
    size = _group_size(sample)
    return list(islice(windows(), number * size, (number + 1) * size))


def standard_error(sums: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return the standard error of Σ loss / Σ targets over groups (loss, targets); None for a single group.

    `share` is the part of the split that the groups cover, from 0 to 1.
    """
    targets = sum(count for _, count in sums)
    if len(sums) < 2 or not targets:
        return None
    mean = sum(loss for loss, _ in sums) / targets
    squares = sum((loss - mean * count) ** 2 for loss, count in sums)
    return math.sqrt(squares * len(sums) / (len(sums) - 1) * max(0.0, 1.0 - share)) / targets


def _group_size(sample: EvaluationSample) -> int:
    """Return the number of batches of a group; 1 if the number of all is unknown."""
    return -(-sample.batches // _GROUPS) or 1


def _groups(batches: Iterable[MicroBatch], size: int) -> Iterator[Iterator[MicroBatch]]:
    """Yield consecutive groups of `size` batches, one batch in memory at a time; consume each group before the next."""
    left = iter(batches)
    for first in left:
        yield chain((first,), islice(left, size - 1))


def _cut(batches: Iterable[MicroBatch], parts: int) -> Iterator[MicroBatch]:
    return (pair for ids, targets in batches for pair in zip(ids.chunk(parts), targets.chunk(parts), strict=True))


def _counted(step: Step, targets: Tensor) -> Count:
    """Return the number of targets that the last forward's loss counted."""
    tally = step.program.figures.tally
    return (targets != NOT_COUNTED).sum() if tally is None else tally.last


def summed_evaluation(step: Step, batches: Iterable[MicroBatch]) -> tuple[float, float]:
    """Evaluate on one device → (summed loss, number of targets that it counted).

    Both are added up on the device, in float64 as the host would, so the host waits for it once.
    """
    loss = torch.zeros((), dtype=torch.float64, device=step.program.device)
    targets: Count = 0.0
    with evaluating(step), torch.no_grad(), ExitStack() as contexts:
        for context in step.program.step_contexts:
            contexts.enter_context(context())
        for batch in batches:
            loss += summed_loss(step, batch).double()
            targets = targets + _counted(step, batch[1])
    return loss.item(), host(targets)


@contextmanager
def evaluating(step: Step) -> Iterator[None]:
    """Turn dropout off for every part inside the context, and on after it."""
    for part in step.parts:
        part.eval()
    try:
        yield
    finally:
        for part in step.parts:
            part.train()
