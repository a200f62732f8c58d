"""Predict what a training costs: hours, energy and money on devices of a datasheet."""

from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, on_device, predictable
from assay.config.home import Home
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.config.run import Run
    from assay.estimator.cost import FlopsCost, TrainingCost
    from assay.estimator.estimate import Estimate

_MOST = 1e20
"""Largest number of tokens, devices, and money for an hour."""


def training_cost(
    source: Source = None,
    *overrides: str,
    tokens: float,
    device: str = "a100",
    devices: int = 1,
    mfu: float | None = None,
    price: float | None = None,
    optimizations: Stack = (),
) -> "TrainingCost":
    """Predict hours, energy and money of training on some tokens, on devices of a datasheet.

    The hours are those of the step with `optimizations`, as `estimate` predicts it for the device. Several devices
    compute a batch each, and wait for nothing. `mfu`, the share of the 16-bit peak that the model's own FLOPs reach,
    decides in its place. It is assumed as 0.4 where no step is predicted. Whether the step fits the device is said in
    any case. `price` is that of an hour of one device.
    Raises `UsageError` for an unknown device and for an impossible number.
    """
    from assay.estimator.cost import TrainingCost
    from assay.hardware.devices import device as known

    if not 1 <= tokens <= _MOST:
        raise UsageError(f"tokens must be positive, and none above {_MOST:g}; a training has at least one")
    share, sheet = _checked_mfu(devices, mfu, price), known(device)
    with predictable(configure(source, overrides, optimizations), Home()) as run:
        given = TrainingCost(model=run.model, tokens=tokens, device=sheet, devices=devices, mfu=share, price=price)
        found = _step(run, given, device)
        pace = None if found is None or mfu is not None else _pace(found, given)
        return given.model_copy(update=_memory(run, found) | (pace or {"assumed": mfu is None}))


def _step(run: "Run", asked: "TrainingCost", device: str) -> "Estimate | None":
    """Return the prediction of a step on one device; None if none is made for devices of its kind."""
    from assay.estimator.estimate import estimate as predict

    return None if asked.device.capability is None else predict(*on_device(run.model_copy(update={"ranks": 1}), device))


def _memory(run: "Run", found: "Estimate | None") -> "dict[str, object]":
    """Return the fields of a cost on the memory of a predicted step."""
    from assay.estimator.memory_fit import batch_of, fit_of

    if found is None:
        return {}
    stack = "+".join(map(str, run.optimizations))
    return {"stack": stack, "batch": batch_of(found.run), "fit": fit_of(found)}


def _pace(found: "Estimate", asked: "TrainingCost") -> "dict[str, object] | None":
    """Return the fields of a cost at the pace of a predicted step; None if its time is not predicted."""
    from assay.estimator.cost import Training, mfu_of

    time = found.step_time
    if time is None:
        return None
    training = Training(
        tokens=asked.tokens,
        tokens_per_step=found.run.tokens_per_step * asked.devices,
        step_seconds=time.seconds,
        spread=time.spread,
        devices=asked.devices,
        price=asked.price,
    )
    return {"training": training, "mfu": mfu_of(found.run.model, asked.device, training)}


def flops_cost(
    flops: float, *, device: str = "a100", devices: int = 1, mfu: float | None = None, price: float | None = None
) -> "FlopsCost":
    """Predict hours, energy and money of training FLOPs, from a device's datasheet, as `training_cost` does.

    Raises `UsageError` for an unknown device and for an impossible number.
    """
    from assay.estimator.cost import FlopsCost
    from assay.hardware.devices import device as known

    share = _checked_mfu(devices, mfu, price)
    return FlopsCost(flops=flops, device=known(device), devices=devices, mfu=share, price=price)


def _checked_mfu(devices: int, mfu: float | None, price: float | None) -> float:
    """Return the MFU, by default the usual one. Raises `UsageError` for impossible devices, MFU or price."""
    from assay.estimator.cost import USUAL_MFU

    share = USUAL_MFU if mfu is None else mfu
    limits = {"devices": (devices, 1, _MOST), "mfu": (share, 1e-6, 1), "price": (price or 0, 0, _MOST)}
    for name, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise UsageError(f"{name}={value:g} is not possible; give a number from {least:g} to {most:g}")
    return share
