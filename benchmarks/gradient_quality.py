"""Gradient quality on WikiText-2: how well the gradient of a micro-batch agrees with the true one, as training goes on.

    python benchmarks/gradient_quality.py --text shared/data/wikitext-2/train.txt [--home PATH] [--page FILE]

The third document of the library skips larger batches, "since the gradients generated in a single micro-batch are
already coherent enough". Here its small model trains for 20, 100 and 400 steps. At each end the gradients of 32
micro-batches are computed without an update (`assay.gradients`), for three sizes. Their noise scale N predicts the mean
cosine of two batches of B sequences as 1 / (1 + N/B), and that of one batch with the true gradient as its root. The
prediction of all sizes is from the N of the middle one.

A run that the home already has is not repeated.
"""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import assay
from assay.errors import UsageError
from assay.records.gradients import GradientProbe

SMALL = (
    *("model.n_layer=4", "model.n_head=4", "model.n_embd=128", "model.context_length=64", "model.dropout=0"),
    *("data.tokenizer=bpe", "training.batch_size=12", "training.warmup_steps=10", "training.eval_interval=0"),
)
"""The shape for two cores of the studies `wikitext-recipe`."""
STEPS = (20, 100, 400)
SIZES = (4, 12, 48)
MICRO_BATCHES = 32


class Quality(NamedTuple):
    """Gradients after some steps, by the sequences of a micro-batch."""

    steps: int
    probes: dict[int, GradientProbe]


def measured(text: Path, steps: int, home: Path) -> Quality:
    """Train for some steps unless that was done, and compute gradients of every size."""
    name = f"gradient-quality-{steps}"
    probe = (name, MICRO_BATCHES, home)
    try:
        return Quality(steps, {size: _probe(*probe, size) for size in SIZES})
    except UsageError:
        changes = (f"data.path={text.resolve()}", f"training.steps={steps}")
        assay.train("wikitext-2", *SMALL, *changes, name=name, home=home)
    return Quality(steps, {size: _probe(*probe, size) for size in SIZES})


def _probe(name: str, micro_batches: int, home: Path, size: int) -> GradientProbe:
    return assay.gradients(name, micro_batches=micro_batches, sequences=size, home=home)


def page(found: list[Quality]) -> str:
    """Return the tables."""
    lines = [
        "| steps | loss | noise scale, in sequences | agreement with the true gradient: "
        + " | ".join(f"{size} sequences" for size in SIZES)
        + " |",
        "|---" * (3 + len(SIZES)) + "|",
    ]
    for one in found:
        scale = one.probes[SIZES[1]].noise_scale
        if scale is None:
            lines.append(f"| {one.steps} | {one.probes[SIZES[1]].loss:.2f} | hides the gradient |" + " |" * len(SIZES))
            continue
        error = "" if scale.standard_error is None else f" ± {scale.standard_error:.1f}"
        shares = " | ".join(f"{(1 + scale.sequences / size) ** -0.5:.2f}" for size in SIZES)
        loss = one.probes[SIZES[1]].loss
        lines.append(f"| {one.steps} | {loss:.2f} | {scale.sequences:.1f}{error} | {shares} |")
    lines += ["", "| steps | sequences | mean cosine of two batches | predicted |", "|---|---|---|---|"]
    for one in found:
        scale = one.probes[SIZES[1]].noise_scale
        for size, probe in one.probes.items():
            cosine = "–" if probe.mean_cosine is None else f"{probe.mean_cosine:.3f}"
            predicted = "–" if scale is None else f"{1 / (1 + scale.sequences / size):.3f}"
            lines.append(f"| {one.steps} | {size} | {cosine} | {predicted} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every number of steps, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure the agreement of micro-batches' gradients on WikiText-2.")
    parser.add_argument("--text", type=Path, required=True, metavar="PATH", help="WikiText-2, or a part of it")
    parser.add_argument("--home", type=Path, metavar="PATH", help="home of the runs; default: a new one")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables there")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = chosen.home or Path(place)
        text = page([measured(chosen.text, steps, home) for steps in STEPS])
    print(text)
    if chosen.page is not None:
        chosen.page.write_text(text)


if __name__ == "__main__":
    main()
