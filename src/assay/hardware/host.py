"""A machine as `assay doctor` sees it: where its facts are read, and a finding about one of them."""

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from assay.config.base import Frozen
from assay.hardware.detect import detect
from assay.hardware.machine import Machine

_REPEATS = 400
_LOOPS = 20_000


def _work() -> None:
    """Do about a millisecond of arithmetic."""
    total = 0
    for number in range(_LOOPS):
        total += number * number


def jitter(work: Callable[[], object] = _work, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the 95th percentile of repeated equal work over its median, less one.

    Programs that share the machine, and clocks that change their frequency, make single repetitions longer.
    """
    spent = []
    for _ in range(_REPEATS):
        began = clock()
        work()
        spent.append(clock() - began)
    return statistics.quantiles(spent, n=20)[-1] / statistics.median(spent) - 1


class FindingState(StrEnum):
    """The judgement of a finding."""

    GOOD = "good"
    LIMITED = "limited"
    """Something is missing that this machine cannot have, or need not have."""
    MEND = "mend"
    """Something is wrong that the user can change."""


class Finding(Frozen):
    """One fact about the machine."""

    subject: str
    here: str | None
    """The fact; None if this system does not tell it."""
    state: FindingState
    means: str
    """The consequence for assay."""
    remedy: str = ""
    """An action that mends it; empty if nothing needs to be done."""


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Host:
    """A machine, by the places where its facts are read."""

    machine: Machine = field(default_factory=detect)
    kernel: Path = Path("/proc")
    devices: Path = Path("/sys")
    system: str = platform.system()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    installed: Callable[[str], str | None] = _installed
    """Version of a package; None if it is not installed."""
    program: Callable[[str], str | None] = shutil.which
    jitter: Callable[[], float] = jitter
    half_repeated: Callable[[], int | None] = lambda: None
    """Elements of the largest 16-bit dropout mask of which the GPU repeats half; None if that cannot be seen."""
    home: Path = Path(".assay")
