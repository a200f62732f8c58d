"""Processor time of the dashboard beside eight living runs, each followed by a browser, with the table open as well.

    python benchmarks/dashboard_beside.py [--seconds 30] [--steps-per-second 20]

The runs are logs to which this process appends steps. They count as living, because they name this process. The share
is processor seconds of the server over the seconds of the test, from its start-up on.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from assay.config import Home, load
from assay.optimizations import resolve_run
from assay.store.processes import this_process
from assay.store.run_folder import RunFolder, RunSpec

_RUNS = 8


def living(home: Home) -> list[RunFolder]:
    """Return the folders of runs that this process seems to train."""
    config = resolve_run(load("demo", ["training.steps=100000"]).with_vocabulary())
    found = [RunFolder(home.ready().runs / f"20261124-00000{number}-0123456789-abcd") for number in range(_RUNS)]
    here = this_process(os.getpid())
    assert here is not None
    for folder in found:
        folder.path.mkdir()
        spec = RunSpec(id=folder.id, created="2026-11-24", identity="0123456789ab", config=config, data_folder="")
        folder.prepare(spec)
        folder.write_process(here)
    return found


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Context in which a dashboard of a home runs; yields its link and its process."""
    command = [sys.executable, "-m", "assay", "dashboard", "--port", "0"]
    environment = {**os.environ, "ASSAY_HOME": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.terminate()


def train(folders: list[RunFolder], rate: float, end: float) -> None:
    """Append steps to every log until a time."""
    step = 0
    while time.monotonic() < end:
        event = {"event": "step", "step": step, "loss": 3.0, "seconds": 1 / rate, "tokens": 512, "learning_rate": 1e-3}
        line = json.dumps({**event, "log_gradient_norm": 0.5, "activation_norms": [1.0, 2.0], "phase": "steady"}) + "\n"
        for folder in folders:
            with folder.events_file.open("a") as log:
                log.write(line)
        step += 1
        time.sleep(1 / rate)


def read(link: str, pause: float, end: float) -> None:
    """Read a stream, or a page again and again, until a time."""
    with suppress(OSError):
        while time.monotonic() < end:
            with urllib.request.urlopen(link, timeout=10) as answer:
                while answer.read1() and time.monotonic() < end:
                    pass
            time.sleep(pause)


def main() -> None:
    """Print the share of one core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--steps-per-second", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folders = living(Home(place))
        with serving(Path(place)) as (link, server):
            end = time.monotonic() + given.seconds
            pages = [(f"{link}runs/{folder.id}/events", 1.0) for folder in folders] + [(f"{link}?part=table", 5.0)]
            readers = [threading.Thread(target=read, args=(*page, end), daemon=True) for page in pages]
            process = psutil.Process(server.pid)
            time.sleep(2)
            before, began = process.cpu_times(), time.monotonic()
            for reader in readers:
                reader.start()
            train(folders, given.steps_per_second, end)
            after, spent = process.cpu_times(), time.monotonic() - began
        used = after.user + after.system - before.user - before.system
        print(f"{used:.2f} s of processor time in {spent:.0f} s: {used / spent:.2%} of one core")


if __name__ == "__main__":
    main()
