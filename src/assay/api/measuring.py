"""Measure one step on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, title_of
from assay.config.base import absolute
from assay.config.home import Home, home_of

if TYPE_CHECKING:
    from assay.api.step_results import MeasuredStep
    from assay.data.progress import Progress


def anatomy(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    operators: bool = False,
    memory_snapshot: Path | str | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "MeasuredStep":
    """Measure one step on this machine: time, FLOPs and bytes by class of operator and by module.

    With `operators` the result also has every operator of one more step, and `perfetto(path)` writes them as a trace.
    `memory_snapshot` is a file for CUDA's history of a step's memory, which pytorch.org/memory_viz draws.
    Raises `UsageError` for faults that the user can correct, `StorageError` if the disk refuses.
    """
    from assay.api.step_results import MeasuredStep
    from assay.data.progress import silent
    from assay.launch.anatomy import measure_anatomy

    place = home_of(home)
    run = configure(source, overrides, optimizations)
    snapshot = None if memory_snapshot is None else absolute(memory_snapshot)
    found = measure_anatomy(run, place, on_progress or silent, operators=operators, snapshot=snapshot)
    words = [title_of(source), *(one for one in (source, *overrides) if isinstance(one, str) and "=" in one)]
    stacked = "+".join(map(str, run.optimizations)) or "no optimization"
    return MeasuredStep.of(found.model_copy(update={"title": f"{' '.join(words)} with {stacked}"}))
