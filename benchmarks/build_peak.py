"""Peak of tensors on the host while a model is built: filled on its device, and made on the host first.

    python benchmarks/build_peak.py [--out docs/measured/build.md]

The device is torch's meta device, which has no memory, so every counted byte is the host's. A real device holds the
weights in both cases. For a run on a CPU the host is the device, and the last column has its peak.

A model that is made on the host first has all its weights there before the first one moves. Each is then freed as it
moves. `training.build` fills a weight on its device, so the host has the first values of one at a time.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from assay.api import configure
from assay.config import Run
from assay.data import Prepared, open_prepared
from assay.data.random_tokens import write_random
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.model import GPT
from assay.optimizations import resolve_run
from assay.training.build import baseline, build
from assay.units import format_bytes

SHAPES = {
    "lecture-ladder, small": ("shakespeare-char-cpu", "model.context_length=64", "model.vocab_size=65"),
    "gpt2-124m": ("gpt2-124m", "model.vocab_size=50257"),
}
COLUMNS = ("model", "weights", "largest weight", "made on the host first", "on its device", "on a CPU")
TEXT = """# The peak while a model is built

<!-- Written by benchmarks/build_peak.py. -->

Bytes of tensors on the host while a model is built for a device. Made on the host first, it has all weights there, and
for a moment the projection twice, until it is tied to the embedding. `training.build` fills each weight on its device,
so the host has the first values of one weight at a time. The device holds the weights in both cases. On a CPU the host
is the device ([decision 9](../decisions/0009-weights-are-made-where-they-will-lie.md)).

"""


def peak_of(make: Callable[[], object]) -> int:
    """Return the peak bytes of tensors on the host while something is made and kept."""
    kept: list[object] = []
    return tensor_peak(lambda: kept.append(make()), "cpu").above_start_bytes


def moved(run: Run) -> torch.nn.Module:
    """Return a model that was made on the host and moved to a device without memory."""
    return GPT(run.model).to("meta")


def measured(name: str, run: Run, data: Prepared) -> tuple[str, ...]:
    """Return the row of a model."""
    program = baseline(resolve_run(run), data, torch.device("meta"))
    sizes = [one.nbytes for part in program.parts for one in part.parameters()]
    here = baseline(resolve_run(run), data, torch.device("cpu"))
    peaks = (peak_of(lambda: moved(run)), peak_of(lambda: build(program)), peak_of(lambda: build(here)))
    return name, *map(format_bytes, (sum(sizes), max(sizes), *peaks))


def main() -> None:
    """Measure every shape, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the file of the table; default: it is printed")
    out = parser.parse_args().out
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, (source, *overrides) in SHAPES.items():
        run = configure(source, overrides)
        with tempfile.TemporaryDirectory() as folder:
            tokens = 4 * (run.model.context_length + 1)
            rows.append(measured(name, run, open_prepared(write_random(Path(folder), run.model.vocabulary, tokens))))
    text = TEXT + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    if out is None:
        print(text)
    else:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
