"""Search of what fits into some memory: by the ledger, and verified by short runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, on_device, predictable
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.config.run import Run
    from assay.estimator.capacity import Fitting, Largest
    from assay.hardware import Machine

_STEPS = 3
"""Steps of a run that verifies an answer."""


def capacity(
    source: Source = None,
    *overrides: str,
    memory_bytes: int | None = None,
    of: str | None = None,
    device: str | None = None,
    optimizations: Stack = (),
    verify: bool = False,
    machine: "Machine | None" = None,
    home: Home | Path | str | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
) -> "list[Fitting]":
    """Find the largest batch, context, depth and width of a run whose step stays within some memory, each alone.

    Memory means tensors and library scratch, beyond what a started process holds. It is that of the whole process or
    device if `of` is ``process`` or ``device``. `device` names a GPU that may be absent; by default its whole memory is
    the budget. With `verify`, each answer trains for three steps, and its peak is measured. Raises `UsageError` if the
    run cannot be predicted, for an impossible budget or device, and if nothing fits.
    """
    from assay.estimator.capacity import Fitting
    from assay.estimator.capacity import capacity as found_by_ledger
    from assay.estimator.device_memory import need_of
    from assay.hardware.rates import known_machine
    from assay.launch.prepare import threads_of

    place = home_of(home)
    budget = budget_of(memory_bytes, device)
    run = configure(source, overrides, optimizations)
    if device is not None:
        if verify:
            raise UsageError(f"{device} may be absent, so nothing can be trained there; leave out --verify or --device")
        run, machine = on_device(run, device)
    limited = of or ("tensors" if device is None else "device")
    need_of(limited)
    with predictable(run, place) as known:
        found = found_by_ledger(known, budget, machine or known_machine(place, threads_of(known)), limited)
    if not verify:
        return [Fitting(largest=one) for one in found]
    return [_verified(known, one, place, on_progress) for one in found]


def budget_of(memory_bytes: int | None, device: str | None) -> int:
    """Return the budget in bytes: the one that is given, else all memory of a device.

    Raises `UsageError` if neither is given, or a budget is not positive.
    """
    from assay.hardware.devices import device as known

    if memory_bytes is None and device is not None:
        return known(device).memory_bytes
    if memory_bytes is None:
        raise UsageError("a budget is missing; give --memory, such as 8GB, or name a GPU with --device")
    if memory_bytes < 1:
        raise UsageError(f"a budget of {memory_bytes} bytes is not possible; give an amount such as 8GB")
    return memory_bytes


def _verified(run: "Run", one: "Largest", home: Home, tell: Callable[[str], None]) -> "Fitting":
    from assay.api.training import train
    from assay.estimator.capacity import Fitting
    from assay.records.status import Status

    if one.value is None:
        return Fitting(largest=one)
    tell(f"training {_STEPS} steps with {one.key}={one.value}")
    short = ("warmup_steps=1", "eval_interval=0", "eval_batches=1", "check_values=false", f"steps={_STEPS}")
    result = train(run, *(f"training.{change}" for change in short), f"{one.key}={one.value}", home=home)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    memory = result.memory
    failure = "" if result.status is Status.DONE else f"{result.status}: {result.reason}"
    if memory.tensors_peak_bytes is None:
        return Fitting(largest=one, failure=failure or "its peak was not measured")
    measured = memory.tensors_peak_bytes + (memory.library_scratch_bytes or 0)
    return Fitting(largest=one, measured_bytes=measured, failure=failure)
