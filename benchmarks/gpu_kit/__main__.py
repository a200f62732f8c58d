"""Measurements that need a GPU, in parts that can be taken one by one, stopped and taken up again.

    python benchmarks/gpu_kit [PART]... [--out gpu-kit] [--minutes 12] [--tiny] [--beside FOLDER] [--text FILE]

| part | measures |
| --- | --- |
| rates | products, copies, launches, attention, by size, dtype and duration, on random normal data |
| peaks | memory of forty drawn steps, beside the ledger's |
| race | nanoGPT's step beside ours, by interleaved blocks; FOLDER has its `model.py` |
| honest | thirty honest runs against their references, several side by side |
| cells | the second document's 24 cells, at 60 steps; FILE is tinyshakespeare |
| ladder | the fifth document's ladder |
| tests | the tests that need a GPU |

Each part writes `PART.json` into the folder, after each of its items. An item that is there is not taken again. The
first four need torch, numpy, pydantic, omegaconf, typer and rich only, and a source tree or a wheel of assay. Without
names they are taken, within `--minutes` of time. `python benchmarks/gpu_kit/page.py FOLDER` makes the page elsewhere.

`--tiny` has small shapes, which a CPU runs, too. On an absent GPU the whole kit runs, and no value and no time means
anything.
"""

import argparse
import os
import sys
import time
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parents[1] / "src"), str(_HERE.parents[1] / "tests"), str(_HERE.parent)]
# torch would otherwise start CUDA in this process to count its devices, and no fork of it could use them.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import commands  # noqa: E402
import honest  # noqa: E402
import peaks  # noqa: E402
import race  # noqa: E402
import rates  # noqa: E402
from taking import Given, Part, take_all  # noqa: E402

PARTS = {
    "rates": Part(rates.items, seconds=60),
    "peaks": Part(peaks.items, seconds=60),
    "race": Part(race.items, seconds=120),
    "honest": Part(honest.items, seconds=120, beside=6),
    "cells": Part(commands.cells, seconds=1800),
    "ladder": Part(commands.ladder, seconds=1800),
    "tests": Part(commands.tests, seconds=1200),
}
USUAL = ("rates", "peaks", "race", "honest")


def main() -> int:
    """Take the parts that are asked for; return 1 if an item failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", type=Path, default=Path("gpu-kit"))
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--beside", default="", help="folder with nanoGPT's model.py")
    parser.add_argument("--text", default="", help="a text, such as tinyshakespeare")
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(PARTS)}")
    limits, failed = time.monotonic() + 60 * given.minutes, 0
    for name in given.parts or USUAL:
        failed += take_all(name, PARTS[name], Given(given.tiny, given.beside, given.text), given.out, limits)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
