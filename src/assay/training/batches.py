"""Batches as tensors on the run's device: training's as the seam wants them, and the fixed ones of validation."""

from collections.abc import Callable, Iterable, Sequence

import torch

from assay.config import Run
from assay.data import Batch, Batches, Prepared, validation_windows
from assay.step.program import MicroBatch


def training_batches(
    run: Run, data: Prepared, device: torch.device
) -> Callable[[int, tuple[int, int]], Sequence[MicroBatch]]:
    """The batch seam: a rank's rows of a step, which depend on the run's seed and the step alone."""
    source = Batches(data.train, run.seed, run.training.batch_size, run.model.context_length)
    return lambda step, share: [_on_device(source.at(step, share), device)]


def validation_batches(run: Run, data: Prepared, device: torch.device) -> Callable[[], Iterable[MicroBatch]]:
    """The batches of every evaluation: always the same ones, the whole split or `eval_batches` spread over it."""
    training = run.training
    windows = validation_windows(data.validation, run.model.context_length, training.batch_size, training.eval_batches)
    return lambda: (_on_device(batch, device) for batch in windows)


def _on_device(batch: Batch, device: torch.device) -> MicroBatch:
    ids, targets = (torch.from_numpy(rows).to(device, non_blocking=True) for rows in batch)
    return ids, targets
