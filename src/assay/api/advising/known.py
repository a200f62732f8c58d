"""Knowledge before a search: the rates of a machine, and measured changes of the loss."""

from collections.abc import Callable
from functools import cache
from math import log
from typing import TYPE_CHECKING

from assay.api.configuration import configure
from assay.config.home import Home

if TYPE_CHECKING:
    from assay.advise.evidence import LossChange
    from assay.config import ModelConfig
    from assay.config.run import ResolvedRun
    from assay.hardware import Machine

LIKE = 10
"""Factor between the parameters of two runs up to which one speaks for the loss of the other."""
BYTES = 256


def machine_here(home: Home, threads: int | None, tell: Callable[[str], None]) -> "Machine":
    """Return this machine with its rates, measured if need be."""
    from assay.launch.rates import measured_machine

    return measured_machine(home, threads, tell=tell)


def machine_of(device: str | None) -> "Machine":
    """Return an absent machine with the rates of its datasheet, or without a name one that only counts arithmetic."""
    from assay.advise.arithmetic import counting
    from assay.hardware.detect import detect
    from assay.hardware.devices import absent_machine

    return counting(detect()) if device is None else absent_machine(device)


def loss_changes(run: "ResolvedRun", here: "Machine") -> "dict[str, LossChange]":
    """Return the catalogue's changes of the loss that speak for a run, preferably those on this device.

    They are of runs on the same kind of device, of which the parameters differ by at most a factor of ten.
    """
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import device_of, is_processor, read, shipped

    found: dict[str, LossChange] = {}
    on_cpu, size, device = here.device(run.device) == "cpu", _parameters(run.model), device_of(here)
    for one in sorted(read(shipped()).entries, key=lambda entry: entry.device == device):
        changed = one.changes.get("val_loss")
        if changed is None or is_processor(one.device) != on_cpu:
            continue
        if abs(log(_parameters_of(one.configuration) / size)) <= log(LIKE):
            source = f"{one.configuration}, {one.device}, {one.date}"
            found[one.optimization] = LossChange(changed.change, changed.interval, source)
    return found


@cache
def _parameters_of(configuration: str) -> int:
    """Return the parameters of an entry of the catalogue: a preset with its settings."""
    preset, *words = configuration.split()
    return _parameters(configure(preset, words).with_vocabulary().model)


def _parameters(model: "ModelConfig") -> int:
    """Return the number of parameters; a vocabulary that no text has determined yet counts as bytes."""
    from assay.cost import parameter_count

    known = model if model.vocab_size else model.model_copy(update={"vocab_size": BYTES})
    return parameter_count(known)
