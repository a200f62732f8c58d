"""Batches as tensors: a program's batch source, the micro-batches of a step, and the fixed validation batches."""

import torch
from torch.nn import functional

from assay.config import ResolvedRun
from assay.data import Batch, Batches, Prepared, validation_windows
from assay.errors import UsageError, first_line
from assay.model.loss import NOT_COUNTED
from assay.model.own_batches import OwnBatches
from assay.step.device_queue import copied_to
from assay.step.program import BatchSource, MicroBatch, Program
from assay.training.evaluation import EvaluationSample, Windows
from assay.training.gradients import cut
from assay.training.stops import Unread


def training_batches(run: ResolvedRun, data: Prepared) -> BatchSource:
    """Return the batch source: a rank's rows of a step, a function of the run's seed, the step and the share."""
    source = Batches(data.train, run.seed, run.training.batch_size, run.model.context_length)
    return lambda step, share: [_tensors(source.at(step, share))]


def micro_batches_of(program: Program, step: int) -> list[MicroBatch]:
    """Return this rank's micro-batches of a step, on the device.

    Raises `Unread` if the source cannot give the batch, `UsageError` if its rows do not divide into micro-batches.
    """
    try:
        batch = list(program.batches(step, program.parallel.share))
    except (UsageError, OSError) as error:
        raise Unread(first_line(error)) from error
    return cut([_moved(rows, program.device) for rows in batch], program.micro_batches)


def validation_batches(run: ResolvedRun, data: Prepared, device: torch.device) -> tuple[Windows, EvaluationSample]:
    """Return the batches of every evaluation, and their number: always the same, `eval_batches` or the whole split.

    The split's last window is padded, so that all windows have one length. Pipeline stages and context-parallel ranks
    are built for one length.
    """
    training, length = run.training, run.model.context_length
    windows = validation_windows(data.validation, length, training.batch_size, training.eval_batches)
    sample = EvaluationSample(batches=len(windows), split_targets=len(data.validation) - 1)
    # A loss of the user's own counts all targets, so the last window is not padded.
    filled = _filled if run.model.own is None else lambda rows, length: rows
    return lambda: (_moved(filled(_tensors(batch), length), device) for batch in windows), sample


def own_validation(own: OwnBatches, device: torch.device) -> tuple[Windows, EvaluationSample]:
    """Return all held-out batches of a user's own, and that they are the whole of them; none if the user gives none."""
    return lambda: (_moved(batch, device) for batch in own.validation()), EvaluationSample(whole=True)


def _tensors(batch: Batch) -> MicroBatch:
    ids, targets = batch
    return torch.from_numpy(ids), torch.from_numpy(targets)


def _filled(rows: MicroBatch, length: int) -> MicroBatch:
    """Pad a window at its end, which no earlier position attends to; the padded targets do not count."""
    ids, targets = rows
    lacking = (0, length - ids.shape[1])
    return functional.pad(ids, lacking), functional.pad(targets, lacking, value=NOT_COUNTED)


def _moved(rows: MicroBatch, device: torch.device) -> MicroBatch:
    ids, targets = rows
    return copied_to(device, ids), copied_to(device, targets)
