"""Step times of runs that a dashboard follows, against those of runs that nothing follows.

    python benchmarks/dashboard_steps.py [--pairs 6] [--steps 200]

A pair has two equal runs of `shakespeare-char-cpu` on the built-in corpus, one after the other; which is first changes
from pair to pair. Beside one of them runs a dashboard, with a reader of the run's own stream and one of the table of
runs, as two open browsers. A time is a run's median step. The ratio is a geometric mean over pairs, with its interval.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.config import Home
from dashboard_beside import read, serving
from ratios import mean_ratio

_LONGEST_SECONDS = 600.0


def step_seconds(home: Path, steps: int) -> float:
    """Train one run, and return its median step."""
    words = ["data.corpus=stdlib", f"training.steps={steps}", "training.eval_interval=0", "training.eval_batches=2"]
    command = [sys.executable, "-m", "assay", "train", "shakespeare-char-cpu", *words, "--json"]
    environment = {**os.environ, "ASSAY_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(json.loads(done.stdout)["step_seconds"]["median"])


@contextmanager
def followed(home: Path) -> Iterator[None]:
    """Context in which a dashboard of this home runs, with two readers of the run that begins."""
    known = set(_runs(home))
    with serving(home) as (link, _):
        end = time.monotonic() + _LONGEST_SECONDS
        threading.Thread(target=read, args=(f"{link}?part=table", 5.0, end), daemon=True).start()
        threading.Thread(target=_follow, args=(home, known, link, end), daemon=True).start()
        yield


def _follow(home: Path, known: set[str], link: str, end: float) -> None:
    while not (new := set(_runs(home)) - known):
        time.sleep(0.1)
    read(f"{link}runs/{new.pop()}/events", 1.0, end)


def _runs(home: Path) -> list[str]:
    place = Home(home).runs
    return [one.name for one in place.iterdir()] if place.is_dir() else []


def main() -> None:
    """Print each pair, and the ratio over pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for number in range(given.pairs):
            times = {}
            for beside in (False, True) if number % 2 == 0 else (True, False):
                if beside:
                    with followed(home):
                        times[beside] = step_seconds(home, given.steps)
                else:
                    times[beside] = step_seconds(home, given.steps)
            ratios.append(times[True] / times[False])
            print(f"pair {number}: {1e3 * times[False]:.2f} ms alone, {1e3 * times[True]:.2f} ms followed", flush=True)
    print(f"followed over alone: {mean_ratio(ratios)}")


if __name__ == "__main__":
    main()
