"""Rates and step times measured earlier on this machine, read without torch from small JSON files.

Rates are kept once for all homes of a user, and step times in the cache of the home, because they are of its models.
The key of an entry is what its rates depend on: a processor or accelerator, a version of torch and a number of threads.
Rates under any other key are unknown. A file that cannot be read, has no digest, or was changed since it was written,
counts as empty, and `damaged_files` names it. Figures that cannot be are ignored, and so are rates of an earlier
version of assay that contradict each other. All of these are measured again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from assay.config.home import Home, user_folder
from assay.files import open_file, read_file, seal_doubt, seal_file
from assay.hardware.detect import Machine, Rates, detect, is_lowered, torch_version
from assay.hardware.step_times import StepTimes

_FILE = TypeAdapter(dict[str, Rates])
_TIMES_FILE = TypeAdapter(dict[str, StepTimes])
_STEP = ", step "
_RATES = "machine.json"
_Entry = TypeVar("_Entry", Rates, StepTimes)


def known_machine(home: Home, threads: int | None = None) -> Machine:
    """Return this machine with its measured rates for the given number of threads (None: its default)."""
    machine = detect()
    return machine.model_copy(
        update={"rates": known_rates(home, machine, threads), "step_times": known_step_times(home, machine, threads)}
    )


def known_rates(home: Home, machine: Machine, threads: int | None = None) -> dict[str, Rates]:
    """Return rates by device, `cpu` or `cuda`; a device that was not measured is left out.

    They belong to the machine, so those of the user's other homes count. Rates of the home itself come before them.
    """
    found: dict[str, Rates] = {}
    for path in filter(None, (user_rates_file(), rates_file(home))):
        entries = _read(path, _FILE)
        known = {device: entries.get(_key(device, machine, threads)) for device in devices(machine)}
        found |= {device: one for device, one in known.items() if one and (one.doubtful or not one.contradictory)}
    return found


def known_step_times(home: Home, machine: Machine, threads: int | None = None) -> dict[str, StepTimes]:
    """Return step times that were measured with so many threads, by the digest of their step."""
    entries = _read(step_times_file(home), _TIMES_FILE)
    starts = [_key(device, machine, threads) + _STEP for device in devices(machine)]
    return {key.removeprefix(start): one for key, one in entries.items() for start in starts if key.startswith(start)}


def with_step_times(
    home: Home, machine: Machine, device: str, measured: Mapping[str, StepTimes], threads: int | None = None
) -> bytes:
    """Return the new content of `step_times_file` after a measurement; other entries are kept."""
    start = _key(device, machine, threads) + _STEP
    entries = _read(step_times_file(home), _TIMES_FILE) | {start + digest: one for digest, one in measured.items()}
    return seal_file(_TIMES_FILE.dump_json(entries, indent=1).decode())


def step_times_file(home: Home) -> Path:
    """Path of the file with the step times."""
    return home.cache / "step_times.json"


def with_rates(path: Path, machine: Machine, measured: Mapping[str, Rates], threads: int | None = None) -> bytes:
    """Return the new content of a file of rates after a measurement.

    Entries of other machines and versions are kept.
    """
    entries = _read(path, _FILE) | {_key(device, machine, threads): rates for device, rates in measured.items()}
    return seal_file(_FILE.dump_json(entries, indent=1).decode())


def overrides(home: Home, machine: Machine, measured: Iterable[str], threads: int | None = None) -> bool:
    """Return whether a home has rates of its own for one of some devices."""
    entries = _read(rates_file(home), _FILE)
    return any(_key(device, machine, threads) in entries for device in measured)


def rates_file(home: Home) -> Path:
    """Path of the file with a home's own rates."""
    return home.cache / _RATES


def user_rates_file() -> Path | None:
    """Path of the file with the rates for all homes of the user; None if there is no place for it."""
    folder = user_folder()
    return None if folder is None else folder / _RATES


def devices(machine: Machine) -> tuple[str, ...]:
    """Kinds of devices on which rates are measured."""
    return ("cpu", "cuda") if machine.accelerators else ("cpu",)


def thread_count(machine: Machine, threads: int | None) -> int:
    """Number of threads of CPU kernels: the run's, else `OMP_NUM_THREADS`, else one per core."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return threads or (int(named) if named.isdigit() and int(named) else machine.cores)


def _key(device: str, machine: Machine, threads: int | None) -> str:
    """Key of a device's rates. It names the instruction set only if the user lowered it.

    The processor's own set follows from the processor's name.
    """
    name = machine.accelerators[0].name if device == "cuda" else machine.processor
    lowered = f", {machine.instruction_set}" if device == "cpu" and is_lowered(os.environ) else ""
    return f"{device}: {name}, torch {torch_version() or 'unknown'}, {thread_count(machine, threads)} threads{lowered}"


def damaged_files(home: Home) -> list[Path]:
    """Return the files of measurements that are there and cannot be believed."""
    found = {path: _believed(path, _FILE) for path in filter(None, (user_rates_file(), rates_file(home)))}
    times = {step_times_file(home): _believed(step_times_file(home), _TIMES_FILE)}
    return [path for path, entries in {**found, **times}.items() if entries is None and path.exists()]


def _read(path: Path, content: TypeAdapter[dict[str, _Entry]]) -> dict[str, _Entry]:
    return _believed(path, content) or {}


def _believed(path: Path, content: TypeAdapter[dict[str, _Entry]]) -> dict[str, _Entry] | None:
    """Return the entries of a file whose figures can be; None if the file is missing, damaged or has no digest."""
    try:
        read = read_file(path)
        found = content.validate_json(open_file(read))
    except (OSError, ValueError):
        return None
    if seal_doubt(path.name, read):
        return None
    return {key: one for key, one in found.items() if _can_be(one)}


def _can_be(entry: Rates | StepTimes) -> bool:
    """True if all figures of a measurement are finite and above zero, and no share is more than the whole."""
    share = entry.others_share
    figures = _figures(entry.model_dump(exclude={"others_share"}))
    return (share is None or 0 <= share <= 1) and all(isfinite(one) and one > 0 for one in figures)


def _figures(value: object) -> Iterator[float]:
    """Yield the numbers of nested values."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for one in value:
            yield from _figures(one)
    elif isinstance(value, int | float):
        yield value
