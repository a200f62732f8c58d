"""Gradients of a trained run: its checkpoint, the batches that it would train next, and what follows from them."""

from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.data.progress import Progress
    from assay.records.gradients import GradientProbe
    from assay.store.trained_model import Trained


def gradients(
    name: str,
    *,
    micro_batches: int = 8,
    sequences: int | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "GradientProbe":
    """Measure gradients at the newest checkpoint of a run: scale by module, agreement between micro-batches, noise.

    Each micro-batch has `sequences` sequences, by default the run's batch size, and is one that the run would train
    next. The model is the plain one, without optimizations and dropout, on the CPU, and nothing is updated. Raises
    `UsageError` if there is no such run or checkpoint, if its corpus is gone, or for fewer than two micro-batches.
    """
    from assay.data.progress import silent
    from assay.store.lookup import find
    from assay.store.trained_model import trained

    place, tell = home_of(home), on_progress or silent
    run = find(place, name).spec().config
    size = run.training.batch_size if sequences is None else sequences
    if micro_batches < 2 or size < 1:
        raise UsageError("gradients are compared between micro-batches: give at least 2, of at least 1 sequence")
    return _probed(trained(place, name), run.seed, micro_batches, size, tell)


def _probed(found: "Trained", seed: int, micro_batches: int, sequences: int, tell: "Progress") -> "GradientProbe":
    # Torch is imported only now, so that a mistyped name is reported at once.
    import torch

    from assay.data import Batches
    from assay.data.shards import open_prepared
    from assay.instruments.gradients.noise import mean_cosine, noise_scale
    from assay.instruments.gradients.probe import gradients as probed
    from assay.records.gradients import GradientProbe

    source = Batches(open_prepared(found.data_folder).train, seed, sequences, found.config.context_length)
    batches = (source.at(found.steps + number) for number in range(micro_batches))
    pairs = ((torch.from_numpy(ids), torch.from_numpy(targets)) for ids, targets in batches)
    each = probed(found.model(), pairs, lambda done: tell("computing gradients", done / micro_batches))
    return GradientProbe(
        run=found.run,
        steps=found.steps,
        micro_batches=micro_batches,
        sequences=sequences,
        tokens_per_sequence=found.config.context_length,
        loss=fmean(each.losses),
        gradient_norm=sqrt(max(0.0, float(each.products.mean()))),
        micro_batch_norm=sqrt(float(each.products.trace()) / micro_batches),
        mean_cosine=mean_cosine(each.products),
        noise_scale=noise_scale(each.products, sequences),
        modules=each.modules,
        notes=found.notes,
    )
