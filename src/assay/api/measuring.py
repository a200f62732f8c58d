"""Measure one step on this machine, or the gradients of a trained run."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, title_of
from assay.config.base import absolute
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.step_results import MeasuredStep
    from assay.config.run import Run
    from assay.data.progress import Progress
    from assay.records.gradients import GradientProbe


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
    `UsageError` if there is no such run or checkpoint, or if its corpus is gone. It is also raised for fewer than two
    micro-batches, and for one that does not fit into this machine's memory.
    """
    from assay.data.progress import silent
    from assay.store.lookup import find
    from assay.store.trained_model import find_trained

    place, tell = home_of(home), on_progress or silent
    run = find(place, name).spec().config
    size = run.training.batch_size if sequences is None else sequences
    if micro_batches < 2 or size < 1:
        raise UsageError("gradients are compared between micro-batches: give at least 2, of at least 1 sequence")
    _check_room(run, size)
    found = find_trained(place, name)
    # Torch is imported only now, so that a mistyped name is reported at once.
    from assay.instruments.gradient_agreement import agreement

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


def _check_room(run: "Run", sequences: int) -> None:
    """Raise `UsageError` if the float32 logits and residuals of a micro-batch alone need more than all memory."""
    from assay.hardware import detect
    from assay.units import format_bytes

    model, there = run.model, detect().memory_bytes
    needed = 4 * model.context_length * ((model.vocab_size or 0) + model.n_layer * model.n_embd)
    if sequences * needed > there:
        raise UsageError(
            f"{sequences:,} sequences need at least {format_bytes(sequences * needed)}, and this machine has "
            f"{format_bytes(there)}; give at most {there // needed:,}"
        )
