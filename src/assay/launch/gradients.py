"""Gradients of a trained run: its checkpoint, the batches that it would train next, and what follows from them."""

from math import sqrt
from statistics import fmean

from assay.config.home import Home
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.records.gradients import GradientProbe
from assay.store.lookup import find
from assay.store.trained_model import trained


def probed(name: str, micro_batches: int, sequences: int | None, home: Home, tell: Progress) -> GradientProbe:
    """Measure the gradients of several micro-batches at a run's newest checkpoint.

    Raises `UsageError` if there is no such run or checkpoint, if its corpus is gone, or for impossible numbers.
    """
    run = find(home, name).spec().config
    size = run.training.batch_size if sequences is None else sequences
    if micro_batches < 2 or size < 1:
        raise UsageError("gradients are compared between micro-batches: give at least 2, of at least 1 sequence")
    found = trained(home, name)
    # Torch is imported only now, so that a mistyped name is reported at once.
    import torch

    from assay.data import Batches
    from assay.data.shards import open_prepared
    from assay.measure.gradients.noise import mean_cosine, noise_scale
    from assay.measure.gradients.probe import gradients

    source = Batches(open_prepared(found.data_folder).train, run.seed, size, found.config.context_length)
    batches = (source.at(found.steps + number) for number in range(micro_batches))
    pairs = ((torch.from_numpy(ids), torch.from_numpy(targets)) for ids, targets in batches)
    each = gradients(found.model(), pairs, lambda done: tell("computing gradients", done / micro_batches))
    return GradientProbe(
        run=found.run,
        steps=found.steps,
        micro_batches=micro_batches,
        sequences=size,
        tokens_per_sequence=found.config.context_length,
        loss=fmean(each.losses),
        gradient_norm=sqrt(max(0.0, float(each.products.mean()))),
        micro_batch_norm=sqrt(float(each.products.trace()) / micro_batches),
        mean_cosine=mean_cosine(each.products),
        noise_scale=noise_scale(each.products, size),
        modules=each.modules,
        notes=found.notes,
    )
