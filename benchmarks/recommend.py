"""Advice against a measured sweep: how far the recommended stack is from the fastest of 48, and from nanoGPT's step.

    python benchmarks/recommend.py --text shakespeare.txt [--nanogpt FOLDER] [--shape demo] [--no-sweep] [--json FILE]

For each shape `assay.recommend` searches all stacks, with any change of the loss allowed, and verifies its first three.
A sweep then measures 24 stacks at one and at two micro-batches, with the verified ones among them, in one comparison.
The fastest of so many rows is partly the luckiest. So the fastest three of the sweep are measured once more, in a
comparison of their own with three processes each, together with the verified stacks whose times differ by less than 5 %
from the fastest verified one: one process each cannot tell those apart. The ratio is the result: the time of the best
verified stack over the time of the fastest.

The verified stack is then timed against nanoGPT's step, from equal weights on equal batches, in pairs of one process.
So is the fastest stack that keeps its weights in float32, as nanoGPT does, if it is another one. A ratio above 1 means
that nanoGPT takes longer. Losses of both are printed beside it.
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


def advised(source: Sequence[str], home: Path) -> dict[str, Any]:
    """Return the recommended stack and the measured times of the verified ones."""
    advice = assay.recommend(*source, memory_bytes=MEMORY_BYTES, max_loss_change=None, verify=True, home=home)
    seconds = {"" if stack == "nothing" else stack: time for stack, time in advice.measured.items()}
    fastest = sorted(seconds, key=seconds.__getitem__)
    return {
        "recommended": advice.recommended.title,
        "candidates": advice.counts.candidates,
        "verified": fastest[0] if fastest else "",
        "equal": [stack for stack in fastest if seconds[stack] <= LIMIT * seconds[fastest[0]]],
        "verified_seconds": seconds,
    }


def against_sweep(source: Sequence[str], steps: int, verified: Sequence[str], home: Path) -> dict[str, Any]:
    """Return the sweep, and the time of the best verified stack over that of the fastest, both measured once more.

    A verification cannot tell stacks apart whose times differ by less than 5 %, so `verified` has all of those.
    """
    written = {frozenset(stack.split("+")): stack for stack in swept()}
    mine = [written.get(frozenset(stack.split("+")), stack) for stack in verified]
    sweep = times(source, steps, list(dict.fromkeys([*swept(), *filter(None, mine)])), 1, home)
    fastest = sorted(sweep, key=sweep.__getitem__)[:FASTEST]
    final = times(source, steps, list(filter(None, dict.fromkeys([*fastest, *mine]))), PROCESSES, home)
    own, best = min(mine, key=final.__getitem__), min(final, key=final.__getitem__)
    return {"verified": own, "sweep": sweep, "fastest": best, "final": final, "ratio": final[own] / final[best]}


def raced(found: Mapping[str, Any]) -> list[str]:
    """Return the verified stack, and the fastest that keeps its weights in float32 where that is another one."""
    timed: Mapping[str, float] = found.get("final", found["verified_seconds"])
    kept = [stack for stack in timed if "bf16_full" not in stack]
    fastest = sorted(kept, key=timed.__getitem__)[:1]
    return list(dict.fromkeys([found["verified"], *fastest]))


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
    if "sweep" in found:
        print(f"  fastest of the sweep    {found['fastest'] or 'nothing'}, of {len(found['sweep'])} rows")
        print(f"  ratio of their times    {found['ratio']:.3f} (at most {LIMIT} is asked for)")
    for stack, pair in found.get("nanogpt", {}).items():
        ratio, cpu = pair["ratio"], pair["cpu_time_ratio"]
        print(f"  {stack or 'nothing'}")
        print(f"    nanoGPT / ours        {ratio['median']:.3f} [{ratio['lower']:.3f}, {ratio['upper']:.3f}]")
        print(f"    the same in CPU time  {cpu['median']:.3f} [{cpu['lower']:.3f}, {cpu['upper']:.3f}]")
        print(f"    losses of 20 steps    within {pair['largest_loss_difference']:.1g}")


def page(report: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the answers of all shapes as tables."""
    swept_shapes = {name: found for name, found in report.items() if "sweep" in found}
    lines = [
        f"{known_machine(Home()).processor}, torch {version('torch')}.",
        "",
        "| shape | recommended | best verified | fastest of the sweep | ratio |",
        "|---|---|---|---|---|",
    ]
    for name, found in swept_shapes.items():
        both = (found["verified"], found["fastest"])
        times = [f"`{stack or 'nothing'}` {found['final'][stack] * 1e3:.1f} ms" for stack in both]
        lines.append(f"| {name} | `{found['recommended']}` | {' | '.join(times)} | {found['ratio']:.3f} |")
    lines += ["", "| shape | stack | nanoGPT / ours | losses within |", "|---|---|---|---|"]
    for name, found in report.items():
        for stack, pair in found.get("nanogpt", {}).items():
            ratio = pair["ratio"]
            interval = f"{ratio['median']:.2f} [{ratio['lower']:.2f}, {ratio['upper']:.2f}]"
            lines.append(f"| {name} | `{stack}` | {interval} | {pair['largest_loss_difference']:.1g} |")
    for name, found in swept_shapes.items():
        lines += ["", f"**{name}**: the sweep, in milliseconds of a step.", "", "| stack | ms |", "|---|---|"]
        ordered = sorted(found["sweep"].items(), key=lambda each: each[1])
        lines += [f"| `{stack or 'nothing'}` | {seconds * 1e3:.1f} |" for stack, seconds in ordered]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the chosen shapes; exit 1 if a ratio is above 1.05."""
    parser = argparse.ArgumentParser(description="Hold recommended stacks against a sweep and against nanoGPT.")
    parser.add_argument("--text", type=Path, required=True, metavar="PATH", help="Shakespeare, as nanoGPT has it")
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a folder with nanoGPT's sources")
    parser.add_argument("--shape", choices=TIMED, action="append", help="one of the shapes; default: all")
    parser.add_argument("--no-sweep", action="store_true", help="race the verified stack against nanoGPT only")
    parser.add_argument("--home", type=Path, metavar="PATH", help="home of the comparisons; default: a new one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables there")
    chosen = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in chosen.shape or TIMED:
            source = TIMED[name] if name == "demo" else (*TIMED[name], f"data.path={chosen.text.resolve()}")
            home = chosen.home or Path(place)
            found = report[name] = advised(source, home)
            if not chosen.no_sweep:
                found |= against_sweep(source, STEPS[name], found["equal"], home)
            if chosen.nanogpt is not None and name != "demo":
                rivals = raced(found)
                found["nanogpt"] = {it: against_nanogpt(source, it, chosen.nanogpt, Path(place)) for it in rivals}
            show(name, found)
            if chosen.json is not None:
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
            if chosen.page is not None:
                chosen.page.write_text(page(report))
    if any(one.get("ratio", 1.0) > LIMIT for one in report.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
