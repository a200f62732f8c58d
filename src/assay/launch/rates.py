"""Facts of this machine that helper processes measure, which may import torch: its rates, and masks of dropout.

A helper ends with its parent: its standard input is a pipe that closes when the parent ends in any way.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from assay.absent.gpus import IN_PLACE
from assay.config.home import Home
from assay.errors import StorageError, UsageError
from assay.files import write_file
from assay.hardware import Machine, Rates
from assay.hardware.rates import (
    damaged_files,
    devices,
    known_machine,
    overrides,
    rates_file,
    user_rates_file,
    with_rates,
)
from assay.launch.child import check_alive

_MEASURE = (sys.executable, "-P", "-m", "assay.worker.programs.rates")
_NO_SUCH_DEVICE = 2
_LIMIT_SECONDS = 300
_LOOK = (sys.executable, "-P", "-m", "assay.worker.programs.repeated_masks")
_LOOK_LIMIT_SECONDS = 60


def measured_machine(
    home: Home, threads: int | None = None, *, fresh: bool = False, tell: Callable[[str], None] = lambda text: None
) -> Machine:
    """Return this machine with the rates of each device that torch can use; `fresh` measures all of them anew.

    `threads` is the number of threads of a run, None for the default. `tell` receives a sentence before each wait.
    Raises `UsageError` if `home` cannot be written or a GPU is absent, `StorageError` if the disk refuses, and
    `RuntimeError` if a measurement fails.
    """
    set_aside_damaged(home, tell)
    machine = known_machine(home, threads)
    missing = [device for device in devices(machine) if fresh or device not in machine.rates]
    if not missing:
        return machine
    home.ready()
    if "cuda" in missing and IN_PLACE in os.environ:
        raise UsageError(
            f"the {os.environ[IN_PLACE]} is absent and computes nothing, so nothing can be timed on it; "
            "predict with --device, or run a study with --loss-only"
        )
    found: dict[str, Rates] = {}
    for device in missing:
        tell(f"measuring matrix products and copies on {device}, which takes some seconds")
        try:
            rates = _measure(device, threads)
        except subprocess.TimeoutExpired:
            tell(f"{device} was too busy to be measured within {_LIMIT_SECONDS} s, so its rates stay unknown")
            continue
        if rates is None:
            tell(f"torch cannot use {device} here, so its rates stay unknown")
        else:
            found[device] = rates
    _keep(home, machine, found, threads)
    return known_machine(home, threads)


def _keep(home: Home, machine: Machine, found: Mapping[str, Rates], threads: int | None) -> None:
    """Write rates for all homes of the user, and into this home if that has rates of its own or nothing else can."""
    written, place = False, user_rates_file()
    if place is not None:
        with suppress(OSError, StorageError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_file(place, with_rates(place, machine, found, threads))
            written = True
    if not written or overrides(home, machine, found, threads):
        write_file(rates_file(home), with_rates(rates_file(home), machine, found, threads))


def set_aside_damaged(home: Home, tell: Callable[[str], None]) -> None:
    """Rename files of measurements that were damaged, and say so: what they had is measured again.

    Where the home cannot be written, they stay.
    """
    for path in damaged_files(home):
        aside = path.with_name(f"{path.name}.damaged")
        with suppress(OSError):
            path.replace(aside)
            tell(f"{path} is damaged or has no digest; it is kept as {aside.name}, and its figures are measured anew")


def _measure(device: str, threads: int | None) -> Rates | None:
    """Measure the rates of one device in a process of its own; None if torch has no such device."""
    with _helper([*_MEASURE, device, *(["--threads", str(threads)] if threads else [])]) as process:
        out, errors = process.communicate(timeout=_LIMIT_SECONDS)
    if process.returncode == _NO_SUCH_DEVICE:
        return None
    check_alive(process.returncode, f"the process that measures {device}")
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["it printed no message"]
        raise RuntimeError(f"the measurement of {device} ended with exit code {process.returncode}: {lines[-1]}")
    return Rates.model_validate_json(out.strip().splitlines()[-1])


def largest_half_repeated() -> int | None:
    """Return how many elements the largest 16-bit mask of torch's dropout has of which half comes again on the GPU.

    None if that cannot be seen.
    """
    with _helper(_LOOK) as process:
        try:
            out, _ = process.communicate(timeout=_LOOK_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None
    return int(out.split()[-1]) if process.returncode == 0 else None


@contextmanager
def _helper(command: Sequence[str], errors: int = subprocess.PIPE) -> "Iterator[subprocess.Popen[str]]":
    """Start a process, and close its standard input at the end of the block, which ends it.

    `errors` is where its standard error goes, as `subprocess.Popen` takes it.
    """
    listening, held = os.pipe()
    try:
        with subprocess.Popen(command, stdin=listening, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            os.close(listening)
            listening = -1
            try:
                yield process
            finally:
                os.close(held)
                held = -1
    finally:
        for end in (listening, held):
            if end >= 0:
                os.close(end)
