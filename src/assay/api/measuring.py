"""Measure one step on this machine, and the gradients of a trained run."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, title_of
from assay.config.home import Home, home_of

if TYPE_CHECKING:
    from assay.api.step_results import MeasuredStep
    from assay.data.progress import Progress
    from assay.records.gradients import GradientProbe


def anatomy(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "MeasuredStep":
    """Measure one step on this machine: time, FLOPs and bytes by class of operator and by module.

    Raises `UsageError` for faults that the user can correct, `StorageError` if the disk refuses.
    """
    from assay.api.step_results import MeasuredStep
    from assay.data.progress import silent
    from assay.launch.anatomy import taken_apart

    place = home_of(home)
    run = configure(source, overrides, optimizations)
    found = taken_apart(run, place, on_progress or silent)
    words = [title_of(source), *(one for one in (source, *overrides) if isinstance(one, str) and "=" in one)]
    stacked = "+".join(map(str, run.optimizations)) or "no optimization"
    return MeasuredStep.of(found.model_copy(update={"title": f"{' '.join(words)} with {stacked}"}))


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
    from assay.launch.gradients import probed

    return probed(name, micro_batches, sequences, home_of(home), on_progress or silent)
