"""Our training against nanoGPT's, step by step: one corpus order, its initial weights, its CPU example's settings.

    python benchmarks/nanogpt_parity.py --nanogpt FOLDER --text shakespeare.txt

Both sides train on the batches that our data room draws, in float32, from weights that nanoGPT's own code drew; its
side runs its model, its optimizer groups and its schedule in a loop written out here. Reported is the largest absolute
difference of the two losses over all steps, for our hand-coded attention and for SDPA, against nanoGPT with its fused
attention. The two need not be bit-equal: sums are taken in another order. Exits 1 when a difference is above 1e-4.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import torch

from assay.api import configure
from assay.config import Home, Run
from assay.data import Prepared, prepare
from assay.optimizations import optimizations_of
from assay.training.build import baseline, build
from assay.training.loop import train_step
from peers import nanogpt, plain_loop

CPU = torch.device("cpu")
LIMIT = 1e-4
STEPS, WARMUP, DECAY_STEPS, PEAK, LOW = 2000, 100, 2000, 1e-3, 1e-4
"""Of nanoGPT's CPU example; `STEPS` only says how long it would go on."""


def nanogpt_rate(step: int) -> float:
    """nanoGPT's schedule, from its description: linear warm-up from a step above zero, then a cosine."""
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    through = (step - WARMUP) / (DECAY_STEPS - WARMUP)
    return LOW + 0.5 * (1.0 + math.cos(math.pi * through)) * (PEAK - LOW)


def our_losses(run: Run, data: Prepared, weights: dict[str, torch.Tensor], steps: int) -> list[float]:
    """Train with assay's own pieces."""
    program = baseline(run, data, CPU, weights)
    for one in optimizations_of(run):
        program = one.apply(program, run)
    step = build(program)
    return [train_step(step, index).loss for index in range(steps)]


def compare(folder: Path, text: Path, steps: int, seed: int) -> dict[str, object]:
    """Largest loss differences by attention core, and where the curves went."""
    with tempfile.TemporaryDirectory() as place:
        run = configure("shakespeare-char-cpu", [f"data.path={text}", f"training.steps={STEPS}", f"seed={seed}"])
        data = prepare(run.data, Home(place))
        run = run.with_vocabulary(data.vocab_size)
        peer = nanogpt(folder, run.model, seed)
        batches = baseline(run, data, CPU).batches
        theirs_step = plain_loop(peer, run.training)
        ours = {
            core: our_losses(configure(run, optimizations=stack), data, peer.weights, steps)
            for core, stack in (("hand-coded", ()), ("sdpa", "sdpa_attention"))
        }
        theirs = [theirs_step(batches(index, (0, 1))[0], nanogpt_rate(index)) for index in range(steps)]
    return {
        "steps": steps,
        "seed": seed,
        "first_loss": theirs[0],
        "last_loss": theirs[-1],
        "largest_difference": {
            core: max(abs(a - b) for a, b in zip(losses, theirs, strict=True)) for core, losses in ours.items()
        },
    }


def main() -> None:
    """Print the differences; exit 1 above the limit."""
    parser = argparse.ArgumentParser(description="Compare our losses with nanoGPT's, step by step.")
    parser.add_argument("--nanogpt", type=Path, required=True, metavar="PATH", help="a folder with nanoGPT's sources")
    parser.add_argument("--text", type=Path, required=True, metavar="PATH", help="the text to train on")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = compare(chosen.nanogpt, chosen.text, chosen.steps, chosen.seed)
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"nanoGPT's loss over {chosen.steps} steps: {found['first_loss']:.4f} → {found['last_loss']:.4f}")
        for core, difference in found["largest_difference"].items():
            print(f"largest difference with {core} attention: {difference:.2e} (limit {LIMIT:.0e})")
    if max(found["largest_difference"].values()) > LIMIT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
