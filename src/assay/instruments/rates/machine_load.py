"""Activity of the rest of the machine during a timed block: processor time of others, load, clock frequency.

The kernel counts the processor time of all cores since it started (`/proc/stat`). Busy time that is not this run's was
used by other programs; *steal* time was used by other guests of the hypervisor. Both are counted in hundredths of a
second, so they mean little for a block much shorter than a tenth. A figure that the kernel does not give is None.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_STAT = Path("/proc/stat")
_LOAD = Path("/proc/loadavg")
_PROCESSORS = Path("/proc/cpuinfo")
_FREQUENCY = "cpufreq/scaling_cur_freq"
_CORES = Path("/sys/devices/system/cpu")
_BUSY = (0, 1, 2, 5, 6)
"""user, nice, system, irq, softirq: columns of the first line of `/proc/stat`."""
_STEAL = 7


@dataclass(frozen=True)
class LoadReading:
    """Processor seconds used so far."""

    busy_seconds: float | None
    """Used by all programs on all cores."""
    steal_seconds: float | None
    own_seconds: float
    """Used by this process and its descendants."""


@dataclass(frozen=True)
class Surroundings:
    """Processor time of others between two readings, and the machine's load and clock frequency at the end."""

    others_seconds: float | None
    steal_seconds: float | None
    load: float | None
    clock_hertz: float | None
    cores: int | None


def read() -> LoadReading:
    """Read the processor seconds used so far."""
    own, columns = own_seconds(), _columns()
    if columns is None:
        return LoadReading(None, None, own)
    return LoadReading(sum(columns[at] for at in _BUSY), columns[_STEAL], own)


def own_seconds() -> float:
    """Return the processor seconds of this process and its living descendants."""
    return time.process_time() + sum(map(_seconds, psutil.Process().children(recursive=True)))


def during(spans: Sequence[tuple[LoadReading, LoadReading]], own_seconds: Sequence[float]) -> Surroundings:
    """Summarize spans of time, each between two readings, in which the processes of this run used `own_seconds`."""
    busy = _sum([(before.busy_seconds, after.busy_seconds) for before, after in spans])
    steal = _sum([(before.steal_seconds, after.steal_seconds) for before, after in spans])
    others = None if busy is None else max(0.0, busy - sum(own_seconds))
    return Surroundings(others, None if steal is None else max(0.0, steal), _load(), _clock_hertz(), os.cpu_count())


def _sum(spans: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Sum of the spans' lengths; None if there is none, or an end of any is not known."""
    known = [after - before for before, after in spans if before is not None and after is not None]
    return sum(known) if spans and len(known) == len(spans) else None


def _columns() -> list[float] | None:
    """Processor seconds of all cores, by column of `/proc/stat`; None if it cannot be read."""
    try:
        words = _STAT.read_text().split("\n", 1)[0].split()[1:]
        found = [int(word) / os.sysconf("SC_CLK_TCK") for word in words]
    except (OSError, ValueError):
        return None
    return found if len(found) > _STEAL else None


def _load() -> float | None:
    try:
        return float(_LOAD.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _clock_hertz() -> float | None:
    """Mean clock frequency over the cores, from the kernel's driver or else from `/proc/cpuinfo`."""
    try:
        kilohertz = [int((core / _FREQUENCY).read_text()) for core in _CORES.glob("cpu[0-9]*")]
        return 1e3 * sum(kilohertz) / len(kilohertz)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _PROCESSORS.read_text(), flags=re.MULTILINE)
    except OSError:
        return None
    return 1e6 * sum(map(float, found)) / len(found) if found else None


def _seconds(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system)
