"""Loss on held-out text: the same windows every time, dropout off, no gradients, the run's own forward.

The loss is Σ over all targets / number of targets, so it does not depend on how windows are gathered into batches.
Perplexity is its exponential, per token, and comparable only under one tokenizer. Bits per byte are not so bound:
loss / ln 2 / UTF-8 bytes per token of the held-out text.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from assay.model.loss import NOT_COUNTED
from assay.step.program import MicroBatch, Step
from assay.training.gradients import summed_loss


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found."""

    step: int
    """Optimizer steps done before it."""
    loss: float
    """Nats per token."""
    targets: int
    bytes_per_token: float
    """UTF-8 bytes of the held-out text per token of it."""

    @property
    def perplexity(self) -> float:
        """e^loss, per token; infinite where it does not fit a float."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Bits to code a byte of the text."""
        return self.loss / math.log(2) / self.bytes_per_token


Windows = Callable[[], Iterable[MicroBatch]]
"""The validation batches, from the first on, at every call."""


def evaluate(step: Step, windows: Windows, bytes_per_token: float, done: int) -> Evaluation:
    """Evaluate after `done` steps. Batches are cut as training's are, so that they take no more memory than those."""
    parts = step.program.micro_batches
    cut = (pair for ids, targets in windows() for pair in zip(ids.chunk(parts), targets.chunk(parts), strict=True))
    loss, targets = step.program.evaluate(step, cut)
    return Evaluation(step=done, loss=loss / targets, targets=targets, bytes_per_token=bytes_per_token)


def summed_evaluation(step: Step, batches: Iterable[MicroBatch]) -> tuple[float, int]:
    """The evaluation seam on one device → (summed loss, number of targets)."""
    loss, targets = 0.0, 0
    with evaluating(step), torch.no_grad(), ExitStack() as contexts:
        for context in step.program.step_contexts:
            contexts.enter_context(context())
        for batch in batches:
            loss += summed_loss(step, batch).item()
            targets += int((batch[1] != NOT_COUNTED).sum())
    return loss, targets


@contextmanager
def evaluating(step: Step) -> Iterator[None]:
    """Dropout off inside, and back on after, for every part."""
    for part in step.parts:
        part.eval()
    try:
        yield
    finally:
        for part in step.parts:
            part.train()
