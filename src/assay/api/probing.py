"""Gradients of a trained run: its checkpoint, the batches that it would train next, and what follows from them."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.data.progress import Progress
    from assay.records.gradients import GradientProbe


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
    found = trained(place, name)
    # Torch is imported only now, so that a mistyped name is reported at once.
    from assay.instruments.gradients.agreement import agreement

    return agreement(
        found.model(),
        found.data_folder,
        run=found.run,
        seed=run.seed,
        steps=found.steps,
        micro_batches=micro_batches,
        sequences=size,
        tell=lambda done, total: tell("computing gradients", done / total),
        notes=found.notes,
    )
