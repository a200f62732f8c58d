"""Measure one step on this machine: of a run, of a program of the user's own, or the gradients of a trained run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from assay.api.configuration import Source, Stack, configure, predictable, title_of
from assay.config.base import absolute
from assay.config.home import Home, home_of
from assay.errors import UsageError, short_text

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from assay.api.result_types import MeasuredOwnStep, MeasuredStep, TracedStep
    from assay.config.run import Run
    from assay.data.progress import Progress
    from assay.records.gradients import GradientProbe
    from assay.records.own import OwnStep
    from assay.reference.expected import Kind


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
    from assay.api.result_types import MeasuredStep
    from assay.data.progress import silent
    from assay.launch.anatomy import measure_anatomy

    place = home_of(home)
    run = configure(source, overrides, optimizations)
    snapshot = None if memory_snapshot is None else absolute(memory_snapshot)
    found = measure_anatomy(run, place, on_progress or silent, operators=operators, snapshot=snapshot)
    words = [title_of(source), *(one for one in (source, *overrides) if isinstance(one, str) and "=" in one)]
    stacked = "+".join(map(str, run.optimizations)) or "no optimization"
    return MeasuredStep.from_value(found.model_copy(update={"title": f"{' '.join(words)} with {stacked}"}))


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
    from assay.instruments.gradient_statistics import agreement

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


def measure(
    step: "Callable[[], Any] | str",
    model: "nn.Module | Sequence[nn.Module] | None" = None,
    optimizer: "Optimizer | Sequence[Optimizer] | None" = None,
    *,
    title: str | None = None,
    tokens: int | None = None,
    blocks: int = 5,
    folder: Path | str | None = None,
    against: "Callable[[], Any] | str | None" = None,
    numerics: "Kind | None" = None,
) -> "MeasuredOwnStep":
    """Measure one training step of your own: memory, time, operators, and where they go.

    `step` is a function that trains once: batch, forward, backward, update. It may return its loss, or
    a pair of the summed loss and the number of targets that it counted. It is called some dozens of times in this
    process, and trains the model each time. `model` and `optimizer` may be left out if the step calls them. `tokens`
    are those of one step, by default the targets that its loss counted.

    `step` may also be a text ``module:function``. Then a process of its own imports the module, from `folder` if it is
    given, and calls the function, which returns the step. Only there the peaks of the process and of the heap are
    measured.

    `against` is a baseline: a step in the same form, with a model of its own. First the values of both are compared,
    and the result has a `proof`. `numerics` says how near losses and gradients must be: `exact`, `reassociated`
    (another order of summation, by default) or `lossy` (products in 16 bits). Raises `UsageError` if no optimizer makes
    a step, or if the module or its function fails.
    """
    from assay.api.result_types import MeasuredOwnStep

    _check(step, against, numerics, blocks, tokens)
    kind, options = numerics or "reassociated", {"tokens": tokens, "blocks": blocks}
    if isinstance(step, str):
        if model is not None or optimizer is not None:
            raise UsageError("a step that is named as module:function brings its own model and optimizer")
        return MeasuredOwnStep.from_value(_elsewhere(step, against, folder, kind, title or step, **options))
    modules, optimizers = _several(model), _several(optimizer)
    _check_parts(modules, optimizers)
    found = _here(step, against, modules, optimizers, kind, title or _name(step), **options)
    return MeasuredOwnStep.from_value(found)


def _check(step: Any, against: Any, numerics: Any, blocks: Any, tokens: Any) -> None:
    """Raise `UsageError` for what cannot be measured."""
    from assay.reference.expected import Kind

    for one in (blocks, 1 if tokens is None else tokens):
        if not isinstance(one, int) or one < 1:
            raise UsageError("blocks and tokens must be positive")
    if numerics is not None and against is None:
        raise UsageError("numerics says how near a baseline's values must be; give the baseline as against=…")
    if numerics is not None and numerics not in get_args(Kind):
        raise UsageError(f"numerics is one of {', '.join(get_args(Kind))}, and not {short_text(numerics)}")
    for one in (step, step if against is None else against):
        if not callable(one) and not isinstance(one, str):
            raise UsageError(f"a step is a function or the text module:function, and not {short_text(one)}")
    if against is not None and isinstance(step, str) is not isinstance(against, str):
        raise UsageError("the step and its baseline must both be functions, or both be texts module:function")


def _check_parts(modules: "Sequence[Any]", optimizers: "Sequence[Any]") -> None:
    """Raise `UsageError` for a model that is no module, and for an optimizer that is none of torch's."""
    from torch import nn
    from torch.optim import Optimizer

    for name, kind, given in (("model", nn.Module, modules), ("optimizer", Optimizer, optimizers)):
        for one in given:
            if not isinstance(one, kind):
                raise UsageError(f"{name} is one {kind.__name__} of torch or several, and not {short_text(one)}")


def _elsewhere(
    step: str, against: Any, folder: Path | str | None, numerics: "Kind", title: str, **options: Any
) -> "OwnStep":
    """Measure a step in a process of its own, and its baseline and their values in two more."""
    from assay.launch.own import measure_own_step, prove_own_step
    from assay.records.own import OwnProof

    if against is None:
        return measure_own_step(step, folder, title, **options)
    values = prove_own_step(step, against, folder, numerics)
    found, baseline = (
        measure_own_step(step, folder, title, **options),
        measure_own_step(against, folder, against, **options),
    )
    return found.model_copy(update={"proof": OwnProof.of(found, baseline, values)})


def _here(
    step: "Callable[[], Any]",
    against: Any,
    modules: "Sequence[nn.Module]",
    optimizers: "Sequence[Optimizer]",
    numerics: "Kind",
    title: str,
    **options: Any,
) -> "OwnStep":
    """Measure a step in this process, and its baseline."""
    from assay.own.against import compare_steps
    from assay.own.measure import measure_step
    from assay.records.own import OwnProof

    if against is None:
        return measure_step(step, modules, optimizers, title=title, **options)
    values = compare_steps(step, against, numerics)
    baseline = measure_step(against, title=_name(against), **options)
    found = measure_step(step, modules, optimizers, title=title, **options)
    return found.model_copy(update={"proof": OwnProof.of(found, baseline, values)})


def _name(step: Any) -> str:
    return str(getattr(step, "__name__", "a step"))


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def trace(source: Source = None, *overrides: str, optimizations: Stack = ()) -> "TracedStep":
    """Predict the peak memory of one optimizer step by tracing its program on fake tensors, in a process of its own.

    `source` may be a model of the user's own, ``module:function``. Nothing is trained, and no weight is allocated.
    Raises `UsageError` as a run would, and if a trace cannot follow the step.
    """
    from assay.api.result_types import TracedStep
    from assay.hardware import detect
    from assay.launch.own import trace_own_step
    from assay.optimizations import check, mesh_of, resolve_run

    with predictable(configure(source, overrides, optimizations), Home()) as known:
        run = resolve_run(known)
        if mesh_of(run).size > 1:
            raise UsageError("a trace is of the step of one device; leave out techniques that divide it among ranks")
        check(run, detect())
    return TracedStep.from_value(trace_own_step(run))
