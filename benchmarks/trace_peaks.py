"""Traces of 91 training steps for an H200, on fake tensors, beside the peaks that a real one had.

    python benchmarks/trace_peaks.py [--python PYTHON] [--beside FOLDER]... [--only WORD] [--out PAGE.md]

Steps of assay and of nanoGPT's model are traced with the torch of this Python, models by others with PYTHON, which has
transformers; any build of torch serves. The folders are those of `absent_peaks.py`. Rows that need another
are skipped, and named. It takes some minutes. The page is written to `docs/measured/trace_peaks.md`.
"""

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from absent_peaks import GROUPS, MEASURED, REASONS, answered, title

HERE = Path(__file__).parent
NAMED_BYTES = 192
"""Largest difference of a row that is named."""
NAMES = {
    "vit fp16 scaler": REASONS["vit fp16 scaler"],
}
"""What a difference is, by the row's name."""
HEAD = """# Traced peaks against those of a GPU

Each row is a training step that was traced on fake tensors for an H200, in a process of its own, and then the same step
on a real one (NVIDIA H200, torch 2.11.0+cu130, driver 580): requested bytes at the peak of the third step, with
workspaces cleared before it (`benchmarks/data/README.md`). A trace computes nothing and needs no CUDA. What stops it is
printed instead of a figure: a trace guesses nothing.
"""


def traced(rows: list[dict[str, Any]], python: str, beside: list[str]) -> list[dict[str, Any]]:
    """Trace rows with a Python, and return what each gave."""
    variables = dict(os.environ) | {"PYTHONPATH": str(HERE.parent / "src")}
    return answered(rows, [python, str(HERE / "trace_steps.py")], beside, variables, told)


def told(row: dict[str, Any], found: dict[str, Any]) -> str:
    """What a row gave, in words or as a difference in bytes."""
    if "requested_peak" not in found:
        return " ".join(f"{key}: {value}" for key, value in found.items())
    return f"{found['requested_peak'] - row['requested_peak']:+,}"


def kind_of(row: dict[str, Any], found: dict[str, Any]) -> str:
    """Whether a row is equal, named, not traced, or differs without a name."""
    if "requested_peak" not in found:
        return "not traced" if "failed" not in found else "failed"
    difference = abs(found["requested_peak"] - row["requested_peak"])
    if not difference:
        return "equal"
    small = difference <= NAMED_BYTES or title(row) in REASONS
    return "named" if title(row) in NAMES and small else "other"


def page(rows: list[dict[str, Any]], found: list[dict[str, Any]], versions: str) -> str:
    """The page: what is equal, then every row."""
    kinds = ("equal", "named", "not traced", "failed", "other")
    lines = [HEAD, f"{versions}; {datetime.now(UTC):%Y-%m-%d}. Requested peaks:\n"]
    lines += [f"| steps | rows | {' | '.join(kinds)} |", "| --- " * (2 + len(kinds)) + "|"]
    pairs = list(zip(rows, found, strict=True))
    for name, key in GROUPS.items():
        of_group = [kind_of(row, one) for row, one in pairs if key in row]
        lines.append(f"| {name} | {len(of_group)} | {' | '.join(str(of_group.count(kind)) for kind in kinds)} |")
    lines += ["", "Differences that are named:", ""]
    lines += [f"- {name}: {reason}." for name, reason in NAMES.items()]
    lines += ["", "| step | traced less measured, bytes |", "| --- | ---: |"]
    lines += [f"| {title(row)} | {told(row, one)} |" for row, one in pairs]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Trace the rows, and write the page if asked to. Return 1 if a row differs without a name, or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if given.only in title(row)]
    own, others = ([row for row in rows if ("foreign" in row) is foreign] for foreign in (False, True))
    found = traced(own, sys.executable, given.beside) + (traced(others, given.python, given.beside) if others else [])
    if given.out:
        versions = ", ".join(f"torch {version_of(one)}" for one in dict.fromkeys((sys.executable, given.python)))
        given.out.write_text(page(own + others, found, versions), encoding="utf-8")
    off = [title(row) for row, one in zip(own + others, found, strict=True) if kind_of(row, one) in ("other", "failed")]
    print(f"{len(off)} rows differ without a name: {', '.join(off) or 'none'}")
    return int(bool(off))


def version_of(python: str) -> str:
    """Version of a Python's torch."""
    return subprocess.check_output([python, "-c", "import torch; print(torch.__version__)"], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
