"""Advice against a measured sweep: how far the recommended stack is from the fastest of 48, and from nanoGPT's step.

    python benchmarks/recommend.py --text shakespeare.txt [--nanogpt FOLDER] [--shape demo] [--json FILE] [--page FILE]

For each shape `assay.recommend` searches all stacks, with any change of the loss allowed, and verifies its first three.
A sweep then measures 24 stacks at one and at two micro-batches, with the verified ones among them, in one comparison.
The fastest of so many rows is partly the luckiest. So the fastest three of the sweep and the fastest verified stack are
measured once more, in a comparison of their own with three processes each. Its ratio is the result: the time of the
verified stack over the time of the fastest.

The verified stack is then timed against nanoGPT's step, from equal weights on equal batches, in pairs of one process.
A ratio above 1 means that nanoGPT takes longer. Losses of both are printed beside it.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import assay
from assay.api import configure
from assay.config import Home
from assay.data import prepare
from assay.hardware.rates import known_machine
from assay.training.build import baseline
from peers import nanogpt
from step_time import BATCHES, CPU, Shape, interleave, our_side, peer_side

LARGER = Shape(6, 8, 256, 128, 8, pairs=60, steps=3)
TIMED: Mapping[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "shakespeare": ("shakespeare-char-cpu", "model.bias=false"),
    "larger": ("shakespeare-char-cpu", "model.bias=false", *LARGER.overrides),
}
"""Configurations whose stacks are searched and swept."""
SWEPT = (("", "sdpa_attention"), ("", "compile"), ("", "fused_adamw"), ("", "bf16_mixed", "chunked_cross_entropy"))
"""One of each group makes a stack: 24 in all."""
STEPS: Mapping[str, int] = {"demo": 34, "shakespeare": 34, "larger": 20}
WARMUP = 5
FASTEST, PROCESSES = 3, 3
MEMORY_BYTES = 8 * 10**9
LIMIT = 1.05
"""Largest ratio of the verified stack's time to that of the fastest."""


def swept() -> list[str]:
    """Return the stacks of the sweep except the empty one, which is the baseline of every comparison."""
    accumulation = ("", "gradient_accumulation:micro_batches=2")
    return [stack for chosen in product(*SWEPT, accumulation) if (stack := "+".join(filter(None, chosen)))]


def times(source: Sequence[str], steps: int, stacks: Sequence[str], processes: int, home: Path) -> dict[str, float]:
    """Return the median seconds of a step by stack, from one comparison of so many steps a run."""
    short = {"steps": steps, "warmup_steps": WARMUP, "eval_interval": 0, "eval_batches": 2}
    changes = [f"training.{key}={value}" for key, value in short.items()]
    found = assay.compare(*source, *changes, treatments=stacks, seeds=1, processes=processes, home=home)
    rows = {"": found.baseline} | {row.treatment: row for row in found.rows}
    measured = {title: row.metrics.get("step_seconds") for title, row in rows.items()}
    return {title: time for title, time in measured.items() if isinstance(time, float)}


def advised(source: Sequence[str], steps: int, home: Path) -> dict[str, Any]:
    """Return the fastest verified stack, the sweep, and their ratio in a comparison of their own."""
    advice = assay.recommend(*source, memory_bytes=MEMORY_BYTES, max_loss_change=None, verify=True, home=home)
    verified = min(advice.measured, key=advice.measured.__getitem__, default="nothing")
    same = [stack for stack in swept() if sorted(stack.split("+")) == sorted(verified.split("+"))]
    mine = "" if verified == "nothing" else next(iter(same), verified)
    sweep = times(source, steps, list(dict.fromkeys([*swept(), *filter(None, [mine])])), 1, home)
    fastest = sorted(sweep, key=sweep.__getitem__)[:FASTEST]
    final = times(source, steps, list(filter(None, dict.fromkeys([*fastest, mine]))), PROCESSES, home)
    best = min(final, key=final.__getitem__)
    return {
        "recommended": advice.recommended.title,
        "candidates": advice.counts.candidates,
        "verified": mine,
        "verified_seconds": advice.measured,
        "sweep": sweep,
        "fastest": best,
        "final": final,
        "ratio": final[mine] / final[best],
    }


def against_nanogpt(source: Sequence[str], stack: str, folder: Path, place: Path) -> dict[str, Any]:
    """Time the stack and nanoGPT's step in pairs."""
    run = configure(source[0], source[1:], stack or ())
    data = prepare(run.data, Home(place / "home"))
    run = run.with_vocabulary(data.vocab_size)
    draw = baseline(run, data, CPU).batches
    batches = [draw(index, (0, 1))[0] for index in range(BATCHES)]
    peer = nanogpt(folder, run.model, run.seed)
    same = run.model_copy(update={"model": peer.config})
    ours = our_side(same, data, peer.weights, batches, probes=True)
    return interleave(ours, peer_side(peer, same, data, batches), LARGER)


def show(name: str, found: Mapping[str, Any]) -> None:
    """Print the answer of one shape in a few lines."""
    print(f"{name}: recommended {found['recommended']} of {found['candidates']:,} stacks")
    print(f"  fastest verified stack  {found['verified'] or 'nothing'}")
    print(f"  fastest of the sweep    {found['fastest'] or 'nothing'}, of {len(found['sweep'])} rows")
    print(f"  ratio of their times    {found['ratio']:.3f} (at most {LIMIT} is asked for)")
    if pair := found.get("nanogpt"):
        ratio, cpu = pair["ratio"], pair["cpu_time_ratio"]
        print(f"  nanoGPT / ours          {ratio['median']:.3f} [{ratio['lower']:.3f}, {ratio['upper']:.3f}]")
        print(f"  the same in CPU time    {cpu['median']:.3f} [{cpu['lower']:.3f}, {cpu['upper']:.3f}]")
        print(f"  losses of 20 steps      within {pair['largest_loss_difference']:.1g}")


def page(report: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the answers of all shapes as tables."""
    lines = [
        f"{known_machine(Home()).processor}, torch {version('torch')}.",
        "",
        "| shape | recommended | fastest verified | fastest of the sweep | ratio | nanoGPT / ours | losses within |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in report.items():
        times = [f"`{stack or 'nothing'}` {found['final'][stack] * 1e3:.1f} ms" for stack in _both(found)]
        pair = found.get("nanogpt")
        ratio = "– | –"
        if pair is not None:
            about = pair["ratio"]
            ratio = f"{about['median']:.2f} [{about['lower']:.2f}, {about['upper']:.2f}]"
            ratio += f" | {pair['largest_loss_difference']:.1g}"
        cells = (name, f"`{found['recommended']}`", *times, f"{found['ratio']:.3f}", ratio)
        lines.append(f"| {' | '.join(cells)} |")
    for name, found in report.items():
        lines += ["", f"**{name}**: the sweep, in milliseconds of a step.", "", "| stack | ms |", "|---|---|"]
        ordered = sorted(found["sweep"].items(), key=lambda each: each[1])
        lines += [f"| `{stack or 'nothing'}` | {seconds * 1e3:.1f} |" for stack, seconds in ordered]
    return "\n".join(lines) + "\n"


def _both(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["verified"], found["fastest"]


def main() -> None:
    """Measure the chosen shapes; exit 1 if a ratio is above 1.05."""
    parser = argparse.ArgumentParser(description="Hold recommended stacks against a sweep and against nanoGPT.")
    parser.add_argument("--text", type=Path, required=True, metavar="PATH", help="Shakespeare, as nanoGPT has it")
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a folder with nanoGPT's sources")
    parser.add_argument("--shape", choices=TIMED, action="append", help="one of the shapes; default: all")
    parser.add_argument("--home", type=Path, metavar="PATH", help="home of the comparisons; default: a new one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables there")
    chosen = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in chosen.shape or TIMED:
            source = TIMED[name] if name == "demo" else (*TIMED[name], f"data.path={chosen.text.resolve()}")
            report[name] = advised(source, STEPS[name], chosen.home or Path(place))
            if chosen.nanogpt is not None and name != "demo":
                report[name]["nanogpt"] = against_nanogpt(source, report[name]["verified"], chosen.nanogpt, Path(place))
            show(name, report[name])
            if chosen.json is not None:
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
            if chosen.page is not None:
                chosen.page.write_text(page(report))
    if any(one["ratio"] > LIMIT for one in report.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
