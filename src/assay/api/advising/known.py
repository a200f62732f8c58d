"""Knowledge before a search: the rates of a machine, and measured changes of the loss."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.config.home import Home

if TYPE_CHECKING:
    from assay.advise.evidence import LossChange
    from assay.hardware import Machine


def machine_of(device: str | None, home: Home, threads: int | None, tell: Callable[[str], None]) -> "Machine":
    """Return this machine with its rates, measured if need be, or an absent one with those of its datasheet."""
    from assay.hardware.devices import absent_machine
    from assay.launch.rates import measured_machine

    if device is None:
        return measured_machine(home, threads, tell=tell)
    return absent_machine(device)


def loss_changes(device: str) -> "dict[str, LossChange]":
    """Return the measured changes of the loss in the catalogue, preferably on this device."""
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import read, shipped

    found: dict[str, LossChange] = {}
    for one in sorted(read(shipped()).entries, key=lambda entry: entry.device == device):
        changed = one.changes.get("val_loss")
        if changed is not None:
            upper = changed.change if changed.interval is None else changed.interval[1]
            source = f"{one.configuration}, {one.device}, {one.date}"
            found[one.optimization] = LossChange(changed.change, upper, source)
    return found
