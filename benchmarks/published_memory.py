"""Memory that two published studies measured on an A100, predicted on a machine without one.

    python benchmarks/published_memory.py --python PYTHON --beside FOLDER [--out PAGE.md]

PYTHON is the Python of an environment with a CUDA build of torch, and FOLDER has nanoGPT's `model.py`. The 24 cells of
the second document run on an absent H200, for which a real one's figures are stored, and on an absent A100. The rungs
of the fifth document run on an absent A100 of 40 GB, and their largest batches are found by running out of memory.
A quarter of an hour, most of it for compiled steps. The page is written to `docs/measured/published_memory.md`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from absent_peaks import MEASURED, taken
from assay.absent.gpus import absent_device
from assay.absent.launch import run_absent
from assay.absent.script_answer import AbsentAnswer
from assay.absent.toolchain import environment
from assay.estimator.memory_fit import MemoryFit
from assay.studies.documents import with_published

HERE = Path(__file__).parent
SHAPES = {"default": "Default", "context": "Context x2", "layers": "Layers x2", "embeddings": "Embeddings x2"}
CELLS = {
    "none": "None",
    "sgd": "SGD + Scheduler",
    "float16": "Float 16",
    "bfloat16": "Bfloat 16",
    "batch16": "Reduced Batch Size",
    "accumulation": "Gradient Accumulation",
}
GB, GIB = 1e9, 2**30
COLAB = "a100-40gb"
RUNGS = (
    ("Baseline, batch 28", "baseline", 28),
    ("Mixed precision, batch 28", "mixed precision", 28),
    ("Mixed precision, batch 32", "mixed precision", 32),
    ("Compile, batch 32", "compile", 32),
    ("Compile, batch 48", "compile", 48),
    ("Flash attention, batch 48", "flash attention", 48),
    ("Flash attention, batch 64", "flash attention", 64),
)
"""Published row, and the rung and batch of `textbook_gpt.py` that repeat it."""
WITHIN = 0.08
"""Largest relative difference of the fifth document's figures."""

Cell = tuple[str, str]
Figures = Mapping[Cell, float]
"""One figure in bytes for each shape and treatment."""


class Deviation(NamedTuple):
    """Deviation of a row with two changes from what its single changes say."""

    points: float
    """Change of the row less the sum of both changes, in points."""
    ratio: float
    """Ratio of the row over the product of both ratios, less one."""


def deviation(figures: Figures, shape: str, cell: str) -> Deviation:
    """Return the deviation of one row; every change is from the default shape without a treatment."""
    control = figures["default", "none"]
    both, one, other = (figures[key] / control for key in ((shape, cell), (shape, "none"), ("default", cell)))
    return Deviation(100 * ((both - 1) - (one - 1) - (other - 1)), both / (one * other) - 1)


def published_figures(name: str) -> dict[str, float]:
    """Memory that a document of the library prints, in its unit, by the name of the row."""
    return {row["name"]: row["figures"][0] for row in with_published({"library": name})["rows"]}


def second_document(python: str, beside: list[str]) -> Iterator[str]:
    """Yield the lines of the part on the second document."""
    rows = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "nanogpt" in row]
    printed = published_figures("fahey")
    keys = [(row["nanogpt"], row["cell"]) for row in rows]
    paper = {(shape, cell): printed[f"{SHAPES[shape]}, {CELLS[cell]}"] * GB for shape, cell in keys}
    real = dict(zip(keys, rows, strict=True))
    h200, a100 = (dict(zip(keys, taken(rows, python, beside, device), strict=True)) for device in ("h200", "a100"))
    yield _SECOND
    yield from _cells(real, h200, a100, paper)
    yield from _agreement(real, h200, a100, paper)
    reserved = {key: float(a100[key]["reserved_peak"]) for key in keys}
    requested = {key: float(a100[key]["requested_peak"]) for key in keys}
    yield _ADDITIVE
    yield "| | predicted, requested | predicted, reserved | published | ratio, predicted | ratio, published |"
    yield "| --- " + "| ---: " * 5 + "|"
    for shape in list(SHAPES)[1:]:
        for cell in list(CELLS)[1:]:
            asked, held, theirs = (deviation(one, shape, cell) for one in (requested, reserved, paper))
            points = " | ".join(f"{round(one.points):+d}" for one in (asked, held, theirs))
            ratios = " | ".join(f"{round(100 * one.ratio):+d}%" for one in (held, theirs))
            yield f"| {SHAPES[shape]}, {CELLS[cell]} | {points} | {ratios} |"
    same = [
        deviation(reserved, shape, cell).points * deviation(paper, shape, cell).points > 0
        for shape in list(SHAPES)[1:]
        for cell in list(CELLS)[1:]
    ]
    yield f"\nThe sign of the deviation in points is the published one in {sum(same)} of {len(same)} rows.\n"


def _cells(
    real: Mapping[Cell, Any], h200: Mapping[Cell, Any], a100: Mapping[Cell, Any], paper: Figures
) -> Iterator[str]:
    kinds = ("requested", "allocated", "reserved")
    yield "| cell | " + "".join(f"{one} | − H200 | " for one in kinds) + "A100 reserved | published | predicted |"
    yield "| --- " + "| ---: " * 9 + "|"
    for key, theirs in paper.items():
        both = " | ".join(
            f"{h200[key][name] / GB:.3f} | {h200[key][name] - real[key][name]:+,}"
            for name in (f"{one}_peak" for one in kinds)
        )
        held = a100[key]["reserved_peak"]
        label = f"{SHAPES[key[0]]}, {CELLS[key[1]]}"
        yield f"| {label} | {both} | {held / GB:.3f} | {theirs / GB:.2f} | {held / theirs - 1:+.1%} |"


def _agreement(
    real: Mapping[Cell, Any], h200: Mapping[Cell, Any], a100: Mapping[Cell, Any], paper: Figures
) -> Iterator[str]:
    equal = sum(h200[key]["requested_peak"] == real[key]["requested_peak"] for key in paper)
    off = max(abs(h200[key]["reserved_peak"] / real[key]["reserved_peak"] - 1) for key in paper)
    plain = [key for key in paper if key[1] != "accumulation"]
    misses = [abs(a100[key]["reserved_peak"] / paper[key] - 1) for key in plain]
    rerun = [abs(real[key]["reserved_peak"] / paper[key] - 1) for key in plain]
    yield (
        f"\n{equal} of {len(paper)} requested peaks are those of the H200 to the byte, and reserved ones differ by at "
        f"most {off:.2%}. Beside the published figures, {len(plain)} rows without accumulation:\n\n"
        f"- on the absent A100, {_within(misses)}\n- on the real H200, {_within(rerun)}\n"
    )


def _within(misses: list[float]) -> str:
    near, wide = (sum(one <= bound for one in misses) for bound in (0.05, 0.12))
    return f"{near} are within 5 %, {wide} within 12 %, and the worst is off by {max(misses):.0%}."


def fifth_document(python: str) -> Iterator[str]:
    """Yield the lines of the part on the fifth document. Raises `AssertionError` if a figure is beyond the bound."""
    printed = published_figures("gpt124m-colab")
    yield _FIFTH
    yield "| row | requested | allocated | reserved | in use | published | predicted |"
    yield "| --- " + "| ---: " * 6 + "|"
    for label, rung, batch in RUNGS:
        found = answered(python, rung, batch)
        peak, in_use = found.peak, found.in_use_bytes
        assert peak is not None, label
        assert in_use is not None, label
        middle = sum(in_use) / 2 / GIB
        assert abs(middle / printed[label] - 1) <= WITHIN, (label, middle)
        figures = (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes)
        cells = " | ".join(f"{one / GIB:.1f}" for one in figures)
        yield f"| {label} | {cells} | {middle:.1f} | {printed[label]:.1f} | {middle / printed[label] - 1:+.1%} |"
    yield _LADDER
    yield "| rung | largest batch | largest multiple of four | published batch |\n| --- | ---: | ---: | ---: |"
    chosen = {rung: batch for _, rung, batch in RUNGS}
    largest = {rung: largest_batch(python, rung, batch) for rung, batch in chosen.items()}
    for rung, batch in chosen.items():
        yield f"| {rung} | {largest[rung]} | {largest[rung] // 4 * 4} | {batch} |"
    same = sum(largest[rung] // 4 * 4 == batch for rung, batch in chosen.items())
    yield f"\nThe document's batch is the largest multiple of four that fits, at {same} of {len(chosen)} rungs."


def largest_batch(python: str, rung: str, near: int) -> int:
    """Largest batch of a rung that does not run out of memory; the search begins at a batch that may fit."""
    low, high = 0, None
    batch = near
    while high is None or high - low > 1:
        if answered(python, rung, batch).fit in (MemoryFit.YES, MemoryFit.BARELY):
            low = batch
        else:
            high = batch
        batch = low + max(1, near // 8) if high is None else (low + high) // 2
    return low


def answered(python: str, rung: str, batch: int) -> AbsentAnswer:
    """The answer of one run of a rung. Raises `AssertionError` if it failed otherwise than by exhausted memory."""
    command = [python, str(HERE / "textbook_gpt.py"), rung, str(batch)]
    device = absent_device(COLAB)
    found = AbsentAnswer(device, 1, command, run_absent(command, device))
    assert found.fit is not MemoryFit.UNKNOWN, (rung, batch)
    print(f"{rung}, batch {batch}: {found.fit}", file=sys.stderr, flush=True)
    return found


_HEAD = """# Published memory, without its GPU

Two documents of the library measured memory on an A100. Here the same steps run on a machine without a GPU ([an absent
GPU](../absent-gpu.md)), by `python benchmarks/published_memory.py`: torch {torch}, {date}.
"""
_SECOND = """## The second document: 24 cells of nanoGPT

The steps are those of nanoGPT's model, trained as its `train.py` does. The first columns are an absent H200, in GB
(10^9 bytes), each with its difference to a real H200 in bytes. The last three are an absent A100, the published figure
(`torch.cuda.max_memory_reserved` of a whole run, on a torch of 2023), and the prediction's difference to it.
"""
_ADDITIVE = """### Deviation from additivity

The document asks whether savings add up. A deviation is the change of a row less the sum of its two single changes, in
points; the ratio is the row's ratio over the product of the two, less one. *Predicted* is the absent A100, *published*
is computed from the printed table.
"""
_FIFTH = """## The fifth document: GPT-124M on an A100 of 40 GB

The document shows no code. The steps are those of a textbook's GPT of that shape (`benchmarks/textbook_gpt.py`):
context 512, dropout 0.1, LayerNorm, GELU and attention written out. Figures are GiB, as the notebook's display counts
them. *In use* is reserved memory and the middle of the context's range, 0.70 to 0.79 GB. The document's figure is
memory in use on the device.
"""
_LADDER = """
The largest batches are found by running out of memory, each try in a process of its own. The document raised its batch
at each of these rungs, and all of its batches are multiples of four.
"""


def main() -> int:
    """Take all figures, and write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch = environment([given.python]).torch
    lines = [_HEAD.format(torch=torch, date=f"{datetime.now(UTC):%Y-%m-%d}")]
    lines += [*second_document(given.python, given.beside), *fifth_document(given.python)]
    text = "\n".join(lines) + "\n"
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
