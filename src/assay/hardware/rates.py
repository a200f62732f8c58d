"""Rates measured on this machine earlier, read without torch: one small JSON file in the cache, by what decides them.

A rate belongs to a processor or accelerator, a version of torch and a number of threads: under any other of them it is
not known. A file that cannot be read counts as empty, and so do rates of an earlier version of assay that contradict
each other: they are only measured once more.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from assay.config.home import Home
from assay.hardware.detect import detect
from assay.hardware.instruction_set import is_lowered
from assay.hardware.machine import Machine, Rates

_FILE = TypeAdapter(dict[str, Rates])


def known_machine(home: Home, threads: int | None = None) -> Machine:
    """This machine, with the rates that were measured on it as it is now, with so many threads (None: its default)."""
    machine = detect()
    return machine.model_copy(update={"rates": known_rates(home, machine, threads)})


def known_rates(home: Home, machine: Machine, threads: int | None = None) -> dict[str, Rates]:
    """Rates by device, `cpu` or `cuda`; a device that was not measured is left out."""
    entries = _read(rates_file(home))
    keys = {device: _key(device, machine, threads) for device in devices(machine)}
    found = {device: entries[key] for device, key in keys.items() if key in entries}
    return {device: rates for device, rates in found.items() if rates.doubtful or not rates.contradictory}


def with_rates(home: Home, machine: Machine, measured: dict[str, Rates], threads: int | None = None) -> bytes:
    """What `rates_file` should contain after a measurement: the entries of other machines and versions stay."""
    entries = _read(rates_file(home)) | {_key(device, machine, threads): rates for device, rates in measured.items()}
    return _FILE.dump_json(entries, indent=1)


def rates_file(home: Home) -> Path:
    """Where the rates lie."""
    return home.cache / "machine.json"


def devices(machine: Machine) -> tuple[str, ...]:
    """The kinds of devices that rates are measured on."""
    return ("cpu", "cuda") if machine.accelerators else ("cpu",)


def thread_count(machine: Machine, threads: int | None) -> int:
    """How many threads kernels on the CPU have: as many as a run asks for, else the environment's, else one a core."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return threads or (int(named) if named.isdigit() and int(named) else machine.cores)


def _key(device: str, machine: Machine, threads: int | None) -> str:
    """The instruction set is named where the user lowered it; the processor's own follows from its name."""
    name = machine.accelerators[0].name if device == "cuda" else machine.processor
    lowered = f", {machine.instruction_set}" if device == "cpu" and is_lowered(os.environ) else ""
    return f"{device}: {name}, torch {_torch_version()}, {thread_count(machine, threads)} threads{lowered}"


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


def _read(path: Path) -> dict[str, Rates]:
    try:
        return _FILE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
