"""Peaks of 91 training steps on an absent H200, beside those that a real one had.

    python benchmarks/absent_peaks.py --python PYTHON [--beside FOLDER]... [--only WORD | --few] [--out PAGE.md]

PYTHON is the Python of an environment with a CUDA build of torch and assay's requirements. One folder `beside` has
nanoGPT's `model.py`, another `foreign_steps.py`. Rows that need a folder which is not given are skipped, and named.
It takes some minutes, most of them for compiled steps; `--few` takes a dozen quick rows. The page is written to
`docs/measured/absent_peaks.md`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.absent.gpus import ABSENT, description
from assay.absent.launch import library_environment, library_for
from assay.absent.toolchain import environment

HERE = Path(__file__).parent
MEASURED = HERE / "data" / "h200_peaks.jsonl"
_BESIDE = 2
"""Rows that are taken beside each other."""
GROUPS = {"assay": "preset", "nanoGPT's model": "nanogpt", "models by others": "foreign"}
"""Groups of rows, by the key that only they have."""
KINDS = ("requested", "allocated", "reserved")
REASONS = {
    "activation_offload": "events are complete at once here; on the GPU blocks wait for the stream that copies",
    "vit fp16 scaler": "on the GPU gradients overflowed, so the first updates were skipped and there is no state yet",
    "lstm": "cuDNN's recurrent kernels are missing",
}
"""Why a requested peak differs or is missing, by a word of the row's name."""
HEAD = """# Peaks on an absent GPU against a real one

Each row is a training step of its own process: its peak on an absent H200 less the peak on a real one, in bytes. The
real figures are from one NVIDIA H200 (torch 2.11.0+cu130, driver 580). Both are the peaks of the third step, with
workspaces and cache cleared before it (`benchmarks/data/README.md`). A requested peak is the sum of what tensors and
workspaces asked for, so it does not depend on addresses. Allocated and reserved peaks depend on which of several free
blocks the allocator takes, which depends on addresses.
"""


def title(row: dict[str, Any]) -> str:
    """Name of a row."""
    words = (row.get(key) for key in ("preset", "nanogpt", "foreign", "stack", "cell"))
    lead = "nanoGPT " if "nanogpt" in row else ""
    return lead + " ".join(str(one) for one in words if one)


def taken(rows: list[dict[str, Any]], python: str, beside: list[str], device: str = "h200") -> list[dict[str, Any]]:
    """Run all rows on an absent GPU, and return what each gave."""
    library = library_for([python], lambda text: print(text, file=sys.stderr))
    variables = dict(os.environ) | library_environment(library) | description(ABSENT[device], 1)
    variables["PYTHONPATH"] = str(HERE.parent / "src")
    found: list[dict[str, Any]] = [{}] * len(rows)

    def take(part: slice) -> None:
        found[part] = answered(rows[part], [python, str(HERE / "absent_steps.py")], beside, variables, told)

    with ThreadPoolExecutor(_BESIDE) as pool:
        list(pool.map(take, (slice(first, None, _BESIDE) for first in range(_BESIDE))))
    return found


def answered(
    rows: list[dict[str, Any]],
    program: list[str],
    beside: list[str],
    variables: dict[str, str],
    tell: Callable[[dict[str, Any], dict[str, Any]], str],
) -> list[dict[str, Any]]:
    """Give rows to a program, which prints a line of JSON for each, and return what each gave.

    Each answer is printed as `tell` has it, as soon as it is there.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as stream:
        stream.write("".join(f"{json.dumps(row)}\n" for row in rows))
        stream.flush()
        child = subprocess.Popen([*program, stream.name, *beside], env=variables, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        found = []
        for row, line in zip(rows, child.stdout, strict=False):
            found.append(json.loads(line))
            print(title(row), "|", tell(row, found[-1]), file=sys.stderr, flush=True)
    return found


def told(row: dict[str, Any], found: dict[str, Any]) -> str:
    """What a row gave, in words or differences in bytes."""
    if "requested_peak" not in found:
        return " ".join(f"{key}: {value}" for key, value in found.items())
    return ", ".join(f"{kind} {found[f'{kind}_peak'] - row[f'{kind}_peak']:+}" for kind in KINDS)


def page(rows: list[dict[str, Any]], found: list[dict[str, Any]], torch: str) -> str:
    """The page: what is equal, then every row."""
    counted = [(row, one) for row, one in zip(rows, found, strict=True) if "requested_peak" in one]
    lines = [HEAD, f"torch {torch}; {datetime.now(UTC):%Y-%m-%d}. Rows whose peak is equal to the byte:\n"]
    lines += [
        "| steps | rows | requested | allocated | reserved | reserved, largest difference * |",
        "| --- " * 6 + "|",
    ]
    for name, key in GROUPS.items():
        chosen = [(row, one) for row, one in counted if key in row]
        equal = [sum(row[f"{kind}_peak"] == one[f"{kind}_peak"] for row, one in chosen) for kind in KINDS]
        like = [(row, one) for row, one in chosen if row["requested_peak"] == one["requested_peak"]]
        off = max((abs(one["reserved_peak"] / row["reserved_peak"] - 1) for row, one in like), default=0)
        lines.append(f"| {name} | {len(chosen)} | {' | '.join(map(str, equal))} | {off:.2%} |")
    lines.append("\n\\* Among rows whose requested peak is equal. Rows that are not:\n")
    lines += [f"- {name}: {reason}." for name, reason in REASONS.items()]
    lines += ["", "| step | requested | allocated | reserved |", "| --- | ---: | ---: | ---: |"]
    for row, one in zip(rows, found, strict=True):
        if "requested_peak" in one:
            cells = " | ".join(f"{one[f'{kind}_peak'] - row[f'{kind}_peak']:+,}" for kind in KINDS)
        else:
            cells = f"{told(row, one)} | | "
        lines.append(f"| {title(row)} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Take the peaks, and write the page if asked to. Return 1 if a requested peak differs without a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if given.only in title(row)]
    if given.few:
        rows = [row for row in rows if row.get("preset") == "shakespeare-char" and "compile" not in title(row)][:12]
    found = taken(rows, given.python, given.beside)
    if given.out:
        given.out.write_text(page(rows, found, environment([given.python]).torch), encoding="utf-8")
    off = [
        title(row)
        for row, one in zip(rows, found, strict=True)
        if one.get("requested_peak", row["requested_peak"]) != row["requested_peak"]
        and not any(word in title(row) for word in REASONS)
    ]
    print(f"{len(off)} requested peaks differ without a known reason: {', '.join(off) or 'none'}")
    return int(bool(off))


if __name__ == "__main__":
    sys.exit(main())
