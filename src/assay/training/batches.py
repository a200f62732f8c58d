"""Batches as tensors: training's as the seam wants them and as a step takes them, and the fixed ones of validation."""

import torch
from torch.nn import functional

from assay.config import Run
from assay.data import Batch, Batches, Prepared, validation_windows
from assay.errors import UsageError, first_line
from assay.model.loss import NOT_COUNTED
from assay.step.program import BatchSource, MicroBatch, Program
from assay.training.endings import Unread
from assay.training.evaluation import Sample, Windows
from assay.training.gradients import cut


def training_batches(run: Run, data: Prepared) -> BatchSource:
    """The batch seam: a rank's rows of a step, which depend on the run's seed and the step alone."""
    source = Batches(data.train, run.seed, run.training.batch_size, run.model.context_length)
    return lambda step, share: [_tensors(source.at(step, share))]


def micro_batches_of(program: Program, step: int) -> list[MicroBatch]:
    """What this rank trains on in a step, on the device. Raises `Unread` where its source gives no more."""
    try:
        batch = list(program.batches(step, program.share))
    except (UsageError, OSError) as error:
        raise Unread(first_line(error)) from error
    return cut([_moved(rows, program.device) for rows in batch], program.micro_batches)


def validation_batches(run: Run, data: Prepared, device: torch.device) -> tuple[Windows, Sample]:
    """The batches of every evaluation, and their number: the same ones each time, `eval_batches` or the whole split.

    The split ends inside a window, and that one is filled in, so that all are alike: stages of a pipeline, and ranks
    that share positions, are made for one length.
    """
    training, length = run.training, run.model.context_length
    windows = validation_windows(data.validation, length, training.batch_size, training.eval_batches)
    sample = Sample(batches=len(windows), split_targets=len(data.validation) - 1)
    return lambda: (_moved(_filled(_tensors(batch), length), device) for batch in windows), sample


def _tensors(batch: Batch) -> MicroBatch:
    ids, targets = batch
    return torch.from_numpy(ids), torch.from_numpy(targets)


def _filled(rows: MicroBatch, length: int) -> MicroBatch:
    """Behind what is there, where no position looks, with targets that do not count."""
    ids, targets = rows
    lacking = (0, length - ids.shape[1])
    return functional.pad(ids, lacking), functional.pad(targets, lacking, value=NOT_COUNTED)


def _moved(rows: MicroBatch, device: torch.device) -> MicroBatch:
    ids, targets = rows
    return ids.to(device, non_blocking=True), targets.to(device, non_blocking=True)
