"""How fast predictions are: an estimate in a process, `assay estimate` as a command, and a search of all stacks.

    python benchmarks/estimate_speed.py [--repeats 50] [--page FILE]

An estimate is that of gpt2-124m: its peak with all parts, and again with all instants as plain values for JSON. Nothing
is kept from one estimate to the next but what the package itself keeps, so the first one is printed beside the median.
Commands are whole processes with the console script of this environment. A search is `assay.recommend` without timing,
over all stacks of gpt2-124m for an A100 of 40 GB. It is done by tensors, and by all that the device has in use: then
torch's allocator is simulated for the front-runners.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import assay
from assay.hardware import detect

CONFIGURATION = "gpt2-124m"
DEVICE = "a100-40gb"
COMMANDS = 9
SEARCHES = 3
LIMITS = {"estimate": 0.005, "values": None, "command": 0.5, "tensors": 3.0, "device": 3.0}
"""Seconds that are asked for, if any."""


def seconds_of(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each repetition."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def page(rows: dict[str, list[float]], candidates: int) -> str:
    """Return the medians as a table."""
    names = {
        "estimate": f"an estimate of `{CONFIGURATION}` in a process, with its peak",
        "values": "the same with all instants as plain values",
        "command": f"`assay estimate {CONFIGURATION}` as a command",
        "tensors": f"`recommend` over {candidates:,} stacks of `{CONFIGURATION}`, by tensors",
        "device": "the same by the memory in use on the device",
    }
    lines = [f"{detect().processor}.", "", "| | median | first | repeats | asked for |", "|---|---|---|---|---|"]
    for key, seconds in rows.items():
        cells = (statistics.median(seconds), seconds[0])
        told = " | ".join(f"{one * 1e3:,.1f} ms" for one in cells)
        limit = LIMITS[key]
        lines.append(f"| {names[key]} | {told} | {len(seconds)} | {f'{limit * 1e3:,.0f} ms' if limit else ''} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Time all three; exit 1 if a median is above what is asked for."""
    parser = argparse.ArgumentParser(description="Time estimates and a search of stacks.")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table there")
    chosen = parser.parse_args()
    script = Path(sys.executable).with_name("assay")
    with tempfile.TemporaryDirectory() as place:
        os.environ["ASSAY_HOME"] = place  # without rates of this machine, so that only the prediction is timed
        command = [script, "estimate", CONFIGURATION]

        def search(of: str) -> int:
            return assay.recommend(CONFIGURATION, device=DEVICE, calibrate=0, of=of).counts.candidates

        rows = {
            "estimate": seconds_of(lambda: assay.estimate(CONFIGURATION).timeline, chosen.repeats),
            "values": seconds_of(lambda: assay.estimate(CONFIGURATION).to_dict(), chosen.repeats),
            "command": seconds_of(lambda: subprocess.run(command, check=True, capture_output=True), COMMANDS),
            "tensors": seconds_of(lambda: search("tensors"), SEARCHES),
            "device": seconds_of(lambda: search("device"), SEARCHES),
        }
        text = page(rows, search("tensors"))
    print(text)
    if chosen.page is not None:
        chosen.page.write_text(text)
    if any(statistics.median(seconds) > (LIMITS[key] or float("inf")) for key, seconds in rows.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
