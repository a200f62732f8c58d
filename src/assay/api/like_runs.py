"""Measurements of the catalogue that speak for a run: those of like runs, on the same kind of device."""

from collections.abc import Iterator
from functools import cache
from math import log
from typing import TYPE_CHECKING

from assay.api.configuration import configure

if TYPE_CHECKING:
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import CatalogueEntry
    from assay.config import ModelConfig
    from assay.config.run import ResolvedRun
    from assay.hardware import Machine
    from assay.optimizations import Optimization

LIKE = 10
"""Factor between the parameters of two runs up to which one speaks for the other."""
BYTES = 256


def loss_changes(run: "ResolvedRun", here: "Machine") -> "dict[str, LossChange]":
    """Return the catalogue's changes of the loss that speak for a run, preferably those on this device.

    They are of runs on the same kind of device, of which the parameters differ by at most a factor of ten.
    """
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import device_of, is_processor

    found: dict[str, LossChange] = {}
    on_cpu, device = here.device(run.device) == "cpu", device_of(here)
    for one in sorted(_like(run), key=lambda entry: entry.device == device):
        changed = one.changes.get("val_loss")
        if changed is not None and is_processor(one.device) == on_cpu:
            source = f"{one.configuration}, {one.device}, {one.date}"
            found[one.optimization] = LossChange(changed.change, changed.interval, source)
    return found


def slower_techniques(run: "ResolvedRun", here: "Machine") -> "list[str]":
    """Return a sentence on each technique of a run that takes more time here, by a rule or by a measurement.

    Only a measured difference counts, of a like run with this technique alone on this device. It replaces a rule.
    """
    from assay.optimizations import optimizations_of

    ruled = {one.name(): f"{one.name()}: {why}" for one in optimizations_of(run) if (why := one.known_loss(run, here))}
    return list((ruled | _measured_slower(run, here)).values())


def _measured_slower(run: "ResolvedRun", here: "Machine") -> dict[str, str]:
    from assay.analysis.catalogue import device_of, is_processor
    from assay.optimizations import catalogue
    from assay.units import format_percent

    kinds, asked, device = catalogue(), {spec.name for spec in run.optimizations}, device_of(here)
    if run.model.own is not None or is_processor(device) != (here.device(run.device) == "cpu"):
        return {}
    place = "CPU" if is_processor(device) else "GPU"
    return {
        one.optimization: f"{one.optimization}: slower at this size on this {place} in the catalogue "
        f"({format_percent(one.changes['step_seconds'].change)} step time)"
        for one in _like(run)
        if one.optimization in asked and one.device == device and _saves_time(kinds[one.optimization])
        if (change := one.changes.get("step_seconds")) and change.verdict.distinguishable and change.change > 0
    }


def _saves_time(kind: "type[Optimization]") -> bool:
    """Return whether the card of a technique promises time; "one at a time" is none."""
    return "time" in kind.saves.replace("at a time", "")


def _like(run: "ResolvedRun") -> "Iterator[CatalogueEntry]":
    """Yield the entries of the catalogue whose runs have a like number of parameters."""
    from assay.analysis.catalogue import read, shipped_path

    size = _parameters(run.model)
    for one in read(shipped_path()).entries:
        if abs(log(_parameters_of(one.configuration) / size)) <= log(LIKE):
            yield one


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
