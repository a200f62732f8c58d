"""Our fp32 training step against the same step in a plain PyTorch loop, interleaved pair by pair in one process.

    python benchmarks/step_time.py [--nanogpt FOLDER] [--shape small] [--pairs 30] [--json]

Ours is the step that `assay train --with sdpa_attention` runs, its loop included; the peers are loops around
transformers' GPT-2 and, given a folder, nanoGPT's model. All start from the same weights and see the same batches,
which lie on the device; each has the same AdamW, clips at 1.0 and reads its loss every step. The sides of a pair swap
order from pair to pair, and a ratio is taken within a pair, so that a machine that slows down slows both. Ratios are
peer/ours: 1.0 and above means that ours is at least as fast. Losses are held against each other as well: unlike ones
would mean unlike work. transformers runs as it comes, and once more with a GELU of one kernel in place of its default's
several operations, which is the stricter comparison.

The third comparison turns our probes (activation norms of two blocks) off: what they cost is what remains.
FLOPs are those that the estimator counts for the step; the peak is the best of many square products in this very run.
Where other work shares the cores, `OMP_WAIT_POLICY=passive` keeps waiting threads from spinning against it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from assay.api import configure, estimate
from assay.config import Home, Run
from assay.data import Prepared, prepare
from assay.optimizations import optimizations_of
from assay.training.build import baseline, build
from assay.training.loop import train_step
from assay.training.probes import ActivationNorms
from assay.units import format_flops
from peers import Batch, Peer, nanogpt, plain_loop, transformers_gpt2

CPU = torch.device("cpu")
SYMBOLS = 65
BATCHES = 8
"""Different batches, taken in turn."""
WARMUP = 3
"""Steps of each side before the first pair."""
COMPARED = 20
"""First steps whose losses are held against each other; later, unlike rounding has grown into unlike training."""

Side = Callable[[int], float]
"""One step of one side: its index → the loss."""


@dataclass(frozen=True)
class Shape:
    """What is timed, and how much of it."""

    n_layer: int
    n_head: int
    n_embd: int
    context_length: int
    batch_size: int
    pairs: int
    steps: int
    """Of each side in one pair."""

    @property
    def overrides(self) -> list[str]:
        names = ("n_layer", "n_head", "n_embd", "context_length")
        return [f"model.{name}={getattr(self, name)}" for name in names] + [f"training.batch_size={self.batch_size}"]


SHAPES = {"small": Shape(4, 4, 128, 64, 12, pairs=60, steps=5), "large": Shape(6, 6, 384, 256, 8, pairs=20, steps=1)}
"""Pairs are short, so that what disturbs the machine falls on both sides of one."""


def corpus(place: Path) -> Path:
    """Python source of the standard library in its 65 commonest characters: real text, everywhere at hand."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in sorted(Path(tempfile.__file__).parent.glob("[a-d]*.py"))
    )
    common = sorted(set(text), key=text.count, reverse=True)[:SYMBOLS]
    path = place / "corpus.txt"
    path.write_text("".join(filter(set(common).__contains__, text)), encoding="utf-8")
    return path


def our_side(
    run: Run, data: Prepared, weights: dict[str, torch.Tensor] | None, batches: Sequence[Batch], *, probes: bool
) -> Side:
    """assay's step, as its loop runs it, on batches that are there already."""
    program = baseline(run, data, CPU, weights)
    for one in optimizations_of(run):
        program = one.apply(program, run)
    program = replace(program, batches=lambda index, share: [batches[index % len(batches)]])
    step = build(program)
    norms = ActivationNorms(step) if probes else None
    return lambda index: train_step(step, index, norms).loss


def peer_side(peer: Peer, run: Run, data: Prepared, batches: Sequence[Batch]) -> Side:
    """The peer's plain loop on the same batches, at the same learning rates."""
    update, rate = plain_loop(peer, run.training), baseline(run, data, CPU).schedule
    return lambda index: update(batches[index % len(batches)], rate(index))


def interleave(ours: Side, other: Side, shape: Shape) -> dict[str, Any]:
    """Time both in pairs of alternating order; ratios other/ours of wall clock and of the process's CPU time.

    `undisturbed_ratio` divides the tenth percentiles of single steps: other work on the machine only ever adds time.
    """
    sides = {"ours": ours, "other": other}
    losses: dict[str, list[float]] = {name: [side(index) for index in range(WARMUP)] for name, side in sides.items()}
    wall: dict[str, list[list[float]]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for pair in range(shape.pairs):
        for name in ("ours", "other") if pair % 2 == 0 else ("other", "ours"):
            process = time.process_time()
            wall[name].append([])
            for index in range(pair * shape.steps, (pair + 1) * shape.steps):
                clock = time.perf_counter()
                losses[name].append(sides[name](WARMUP + index))
                wall[name][-1].append(time.perf_counter() - clock)
            cpu[name].append(time.process_time() - process)
    per_step = {name: [sum(pair) / shape.steps for pair in pairs] for name, pairs in wall.items()}
    tenth = {name: quantiles([step for pair in pairs for step in pair], n=10)[0] for name, pairs in wall.items()}
    return {
        "ratio": spread([b / a for a, b in zip(per_step["ours"], per_step["other"], strict=True)]),
        "cpu_time_ratio": spread([b / a for a, b in zip(cpu["ours"], cpu["other"], strict=True)]),
        "undisturbed_ratio": tenth["other"] / tenth["ours"],
        "our_seconds": spread(per_step["ours"]),
        "other_seconds": spread(per_step["other"]),
        "pairs": shape.pairs,
        "largest_loss_difference": max(
            abs(a - b) for a, b in zip(losses["ours"][:COMPARED], losses["other"][:COMPARED], strict=True)
        ),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return {"median": median(values), "lower": lower, "upper": upper}


def matmul_peak(seconds: float = 2.0) -> float:
    """FLOP/s of the fastest fp32 product of two square matrices, of two sizes, each repetition timed on its own."""
    best = 0.0
    for size in (512, 1024):
        a, b = torch.rand(2, size, size)
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, b)
            best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def measure(shape: Shape, place: Path, nanogpt_folder: Path | None) -> dict[str, Any]:
    """Every comparison at one shape, and the rate that our step reaches."""
    text = [f"data.path={corpus(place)}", "data.tokenizer=char", "model.bias=false", "training.steps=2000"]
    run = configure("shakespeare-char-cpu", [*shape.overrides, *text], "sdpa_attention")
    data = prepare(run.data, Home(place / "home"))
    run = run.with_vocabulary(data.vocab_size)
    draw = baseline(run, data, CPU).batches
    batches = [draw(index, (0, 1))[0] for index in range(BATCHES)]
    peaks = [matmul_peak()]
    peers = [transformers_gpt2(run.model, run.seed, fused_gelu=fused) for fused in (False, True)]
    if nanogpt_folder is not None:
        peers.append(nanogpt(nanogpt_folder, run.model, run.seed))
    found: dict[str, Any] = {}
    for peer in peers:
        same = run.model_copy(update={"model": peer.config})
        ours = our_side(same, data, peer.weights, batches, probes=True)
        found[peer.name] = interleave(ours, peer_side(peer, same, data, batches), shape)
        peaks.append(matmul_peak())
    watched, bare = (our_side(run, data, None, batches, probes=on) for on in (True, False))
    found["ours without probes"] = interleave(watched, bare, shape)
    peak = max(*peaks, matmul_peak())
    flops = estimate(run).predicted()["step_flops"]
    rate = flops / found["ours without probes"]["our_seconds"]["median"]
    return {
        "shape": {name: getattr(shape, name) for name in ("n_layer", "n_head", "n_embd", "context_length")},
        "batch_size": shape.batch_size,
        "vocabulary": data.vocab_size,
        "against": found,
        "step_flops": flops,
        "flops_per_second": rate,
        "matmul_peak_flops_per_second": peak,
        "share_of_peak": rate / peak,
    }


def show(name: str, found: dict[str, Any]) -> None:
    """A few lines a shape."""
    print(f"{name}: {found['shape']}, batch {found['batch_size']}, vocabulary {found['vocabulary']}")
    for other, pair in found["against"].items():
        wall, cpu = pair["ratio"], pair["cpu_time_ratio"]
        print(
            f"  {other + ' / ours':28} {wall['median']:.3f} [{wall['lower']:.3f}, {wall['upper']:.3f}]"
            f"   CPU time {cpu['median']:.3f} [{cpu['lower']:.3f}, {cpu['upper']:.3f}]"
            f"   undisturbed {pair['undisturbed_ratio']:.3f}"
            f"   {pair['pairs']} pairs, ours {pair['our_seconds']['median'] * 1e3:.1f} ms"
            f"   losses within {pair['largest_loss_difference']:.0e}"
        )
    print(
        f"  {format_flops(found['step_flops'])} per step at {format_flops(found['flops_per_second'])}/s: "
        f"{found['share_of_peak']:.0%} of the {format_flops(found['matmul_peak_flops_per_second'])}/s of matmul"
    )


def main() -> None:
    """Measure the chosen shapes and print medians with quartiles."""
    parser = argparse.ArgumentParser(
        description="Compare our training step with a plain PyTorch loop around peers' models."
    )
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a folder with nanoGPT's sources")
    parser.add_argument("--shape", choices=[*SHAPES, "both"], default="both")
    parser.add_argument("--pairs", type=int, help="default: 60 (small) and 20 (large)")
    parser.add_argument("--threads", type=int, help="threads for kernels; default: torch's choice")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    report = {}
    for name in SHAPES if chosen.shape == "both" else [chosen.shape]:
        shape = SHAPES[name] if chosen.pairs is None else replace(SHAPES[name], pairs=chosen.pairs)
        with tempfile.TemporaryDirectory() as place:
            report[name] = measure(shape, Path(place), chosen.nanogpt)
        if not chosen.json:
            show(name, report[name])
    if chosen.json:
        print(json.dumps({"threads": torch.get_num_threads(), "shapes": report}, indent=1))


if __name__ == "__main__":
    main()
