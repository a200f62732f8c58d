"""Items of a part, each taken in a forked process of its own, and kept in a file as soon as it is there."""

import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.files import write_file
from assay.platforms import fork_writer, read_fork

Result = dict[str, Any]
_PACKAGES = ("numpy", "triton", "assay")
_QUERY = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active"


class Given(NamedTuple):
    """What the command line says about all parts."""

    tiny: bool
    beside: str
    text: str


@dataclass(frozen=True)
class Part:
    """One part of the kit."""

    items: Callable[[Given], Mapping[str, Callable[[], Result]]]
    """Items by name. Each is called in a process that has not used the device."""
    seconds: float
    """Time after which an item is stopped."""
    beside: int = 1
    """Items that run at once."""


class _Child(NamedTuple):
    name: str
    process: int
    pipe: int
    until: float


def take_all(name: str, part: Part, given: Given, folder: Path, limit: float) -> int:
    """Take the items of a part that are missing, until the clock `limit`; return how many failed."""
    file = folder / f"{name}.json"
    found: Result = json.loads(file.read_text()) if file.exists() else {"about": _about(), "items": {}}
    wanted = part.items(given)
    waiting = [one for one in wanted if one not in found["items"]]
    print(f"{name}: {len(wanted) - len(waiting)} of {len(wanted)} items are there", flush=True)
    running: list[_Child] = []
    while running or (waiting and time.monotonic() < limit):
        while waiting and len(running) < part.beside and time.monotonic() < limit:
            running.append(_started(waiting[0], wanted[waiting.pop(0)], time.monotonic() + part.seconds))
        for child in _ended(running):
            running.remove(child)
            found["items"][child.name] = result = _result(child)
            write_file(file, f"{json.dumps(found, indent=1)}\n".encode())
            left = f"{len(waiting) + len(running)} left, {max(0.0, limit - time.monotonic()) / 60:.0f} min"
            print(f"{name}: {child.name}: {_shown(result)} ({left})", flush=True)
    if waiting:
        print(f"{name}: {len(waiting)} items were not begun: the time is over; run it again to go on", flush=True)
    return sum("failed" in one for one in found["items"].values())


def _started(name: str, take: Callable[[], Result], until: float) -> _Child:
    def item_text() -> tuple[str, int]:
        os.setpgid(0, 0)
        torch.set_num_threads(1)  # items run side by side, and threads that wait would spin
        try:
            said = take()
        except BaseException as error:
            lines = str(error).splitlines() or [""]
            said = {"failed": f"{type(error).__name__}: {lines[0]}"}
        sys.stdout.flush()
        return json.dumps(said), 0

    return _Child(name, *fork_writer(item_text), until)


def _ended(running: list[_Child]) -> list[_Child]:
    """Wait until some children say something or are out of time, and return these."""
    until = min(one.until for one in running)
    ready, _, _ = select.select([one.pipe for one in running], [], [], max(0.0, until - time.monotonic()))
    return [one for one in running if one.pipe in ready or one.until <= time.monotonic()]


def _result(child: _Child) -> Result:
    """Return what a child says; one that is out of time is killed with its own children."""
    late = child.until <= time.monotonic()
    if late:
        os.killpg(child.process, signal.SIGKILL)
    text, _ = read_fork(child.process, child.pipe)
    if late:
        return {"failed": "out of time"}
    result: Result = json.loads(text) if text else {"failed": "the process died"}
    return result


def _shown(result: Result) -> str:
    text = json.dumps(result)
    return text if len(text) < 160 else f"{text[:157]}…"


def _about() -> Result:
    """Device, versions, date and command."""
    driver = clocks()
    return {
        "device": driver.get("name") or platform.processor() or platform.machine(),
        "driver": driver.get("driver_version"),
        "python": platform.python_version(),
        "versions": {"torch": torch.__version__} | {name: _version(name) for name in _PACKAGES},
        "cuda": torch.version.cuda,
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
    }


def _version(package: str) -> str | None:
    """Version of a package; None if it runs from a source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def clocks() -> dict[str, str]:
    """Clocks, power, temperature and throttling of the first GPU, as nvidia-smi says; empty without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    asked = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {}
    return dict(zip(_QUERY.split(","), (one.strip() for one in lines[0].split(",")), strict=False))


def device() -> torch.device:
    """Return the GPU, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds_of(work: Callable[[], object], times: int) -> float:
    """Return the seconds of one of `times` calls, by the device's clock; a first call is not counted."""
    work()
    if device().type == "cpu":
        start = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - start) / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times / 1e3


def agreed(work: Callable[[], object], times: int) -> list[float]:
    """Return seconds of `work`, again and again until the best two are within 3 %, at most eight times."""
    found = [seconds_of(work, times)]
    while len(found) < 2 or (sorted(found)[1] > 1.03 * min(found) and len(found) < 8):
        found.append(seconds_of(work, times))
    return found
