"""Agreement and noise of gradients at the weights that a run has trained, over batches that it would train next."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import fmean

import torch

from assay.data import Batches
from assay.data.prepared_folder import open_prepared
from assay.instruments.gradients.noise import mean_cosine, noise_scale
from assay.instruments.gradients.probe import MicroBatch, gradients
from assay.model.gpt import GPT
from assay.records.gradients import GradientProbe


def agreement(
    model: GPT,
    data_folder: Path,
    *,
    run: str,
    seed: int,
    steps: int,
    micro_batches: int,
    sequences: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
    notes: tuple[str, ...] = (),
) -> GradientProbe:
    """Compute the gradient of each micro-batch of `sequences` sequences, and compare them; nothing is updated.

    They are the batches after `steps` steps of a run with this seed. `tell` receives the number of gradients that are
    computed, and of all: two of each micro-batch (`probe`). Raises `UsageError` if the prepared corpus is gone.
    """
    length = model.config.context_length
    source = Batches(open_prepared(data_folder).train, seed, sequences, length)

    def micro_batch(number: int) -> MicroBatch:
        ids, targets = source.at(steps + number)
        return torch.from_numpy(ids), torch.from_numpy(targets)

    each = gradients(model, micro_batch, micro_batches, tell)
    return GradientProbe(
        run=run,
        steps=steps,
        micro_batches=micro_batches,
        sequences=sequences,
        tokens_per_sequence=length,
        loss=fmean(each.losses),
        gradient_norm=sqrt(each.sums.square_of_mean),
        micro_batch_norm=sqrt(float(each.sums.squares.mean())),
        mean_cosine=mean_cosine(each.sums),
        noise_scale=noise_scale(each.sums, sequences),
        modules=each.modules,
        notes=notes,
    )
