"""Measure one step on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, title_of
from assay.config.home import Home, home_of

if TYPE_CHECKING:
    from assay.api.step_results import MeasuredStep
    from assay.data.progress import Progress


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
