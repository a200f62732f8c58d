"""The critical batch size of a run, a noise scale, a loss, measured steps or a planned run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.scaling_results import BatchSizes
    from assay.data.progress import Progress
    from assay.scaling.batch import Critical, KnownSteps, PredictedSteps

_AMOUNTS = (1.0, 1e20)
_RANGES = {
    "noise scale": (1e-3, 1e20),
    "standard error": (0.0, 1e20),
    "loss": (0.1, 100.0),
    "parameters": (1e3, 1e20),
    "steps": _AMOUNTS,
    "batch size": _AMOUNTS,
    "seconds for each step": (1e-9, 1e9),
}


def batch(
    run: str | None = None,
    *,
    noise: float | None = None,
    noise_error: float | None = None,
    loss: float | None = None,
    measured: Path | str | None = None,
    parameters: float | None = None,
    steps: float | None = None,
    batch_size: float | None = None,
    step_seconds: float | None = None,
    batches: Sequence[float] | None = None,
    micro_batches: int = 8,
    sequences: int | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "BatchSizes":
    """Return the critical batch size, and the steps and examples that batch sizes take to the same loss.

    It follows from the gradients of a `run`, a `noise` scale, a `loss` (Kaplan et al. 2020), or a CSV file of
    `measured` steps. With `parameters` the loss after `steps` of `batch_size` tokens is predicted. Else `steps`,
    `batch_size` and `step_seconds` are those of a present run, which give counts and seconds. A `run` has its own.
    Raises `UsageError` for none or several sources, impossible numbers, and a gradient that noise hides.
    """
    from assay.api.scaling_results import BatchSizes
    from assay.scaling.batch import around, rows

    _check_one({"run": run, "noise scale": noise, "loss": loss, "steps": measured, "size": parameters}, noise_error)
    for name, value in zip(
        _RANGES, (noise, noise_error, loss, parameters, steps, batch_size, step_seconds), strict=True
    ):
        _check(name, value)
    present, plan = _present(steps, batch_size, step_seconds), None
    if run is not None:
        critical, own = _of_run(run, micro_batches, sequences, home_of(home), on_progress)
        present = present or own
    else:
        plan = _planned(parameters, present)
        critical = _critical(noise, noise_error, loss if plan is None else plan.loss, measured)
    return BatchSizes(critical, rows(critical, _checked(batches) or around(critical), present), present, plan)


def _check_one(sources: dict[str, object], noise_error: float | None) -> None:
    if sum(one is not None for one in sources.values()) != 1:
        raise UsageError(
            "a critical batch size follows from exactly one of: a run, a noise scale, a loss, measured steps, or the "
            "size of a planned run with its steps and batch size"
        )
    if noise_error is not None and sources["noise scale"] is None:
        raise UsageError("a standard error is that of a noise scale; give both")


def _check(name: str, value: float | None) -> None:
    low, high = _RANGES[name]
    if value is not None and not low <= value <= high:
        raise UsageError(f"{name} {value:g} is not possible; give a number from {low:g} to {high:g}")


def _checked(batches: Sequence[float] | None) -> Sequence[float] | None:
    for one in batches or ():
        _check("batch size", one)
    return sorted(set(batches)) if batches else None


def _present(steps: float | None, batch_size: float | None, seconds: float | None) -> "KnownSteps | None":
    """Return the present run; None if none is given. Raises `UsageError` for a part of it."""
    from assay.scaling.batch import KnownSteps

    if steps is None and batch_size is None and seconds is None:
        return None
    if steps is None or batch_size is None:
        raise UsageError("a present run has both steps and a batch size, from which other batch sizes follow")
    return KnownSteps(batch_size, steps, seconds)


def _planned(parameters: float | None, present: "KnownSteps | None") -> "PredictedSteps | None":
    """Return the run whose loss is predicted; None if no size is given."""
    from assay.scaling.batch import kaplan_loss, planned_run

    if parameters is None:
        return None
    if present is None:
        raise UsageError("a planned run has parameters, steps and a batch size in tokens; give all three")
    return planned_run(kaplan_loss, parameters, present.steps, present.batch)


def _critical(noise: float | None, error: float | None, loss: float | None, measured: Path | str | None) -> "Critical":
    from assay.scaling.batch import at_loss, fit, from_noise, read_steps

    if noise is not None:
        return from_noise(noise, error, "examples", "the noise scale that you gave")
    return fit(*read_steps(Path(measured or ""))) if loss is None else at_loss(loss)


def _of_run(
    name: str, micro_batches: int, sequences: int | None, home: Home, tell: "Progress | None"
) -> "tuple[Critical, KnownSteps | None]":
    """Return the critical batch size at a run's newest checkpoint, and the run as it was measured."""
    from assay.api.measuring import gradients
    from assay.scaling.batch import KnownSteps, from_noise
    from assay.store.lookup import find

    found = gradients(name, micro_batches=micro_batches, sequences=sequences, home=home, on_progress=tell)
    scale = found.noise_scale
    if scale is None or scale.sequences <= 0:
        raise UsageError(
            f"the noise of {found.run} hides its gradient; give more --micro-batches, or larger ones with --sequences"
        )
    source = f"the gradient noise scale of {found.run} after {found.steps} steps"
    folder = find(home, name)
    result, size = folder.result(), folder.spec().config.training.batch_size
    seconds = None if result is None or result.speed.step_seconds is None else result.speed.step_seconds.median
    present = None if result is None or result.steps < 1 else KnownSteps(size, result.steps, seconds)
    return from_noise(scale.sequences, scale.standard_error, "sequences", source), present
