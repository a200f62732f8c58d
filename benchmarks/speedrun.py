"""nanoGPT's CPU example against our fastest way to its loss, as whole commands, seed by seed on one machine.

    python benchmarks/speedrun.py --nanogpt FOLDER --text input.txt --seeds 5 --out docs/measured/speedrun

nanoGPT runs by its own script and the settings of its README, ours by `assay train shakespeare-speedrun`. The one that
runs first changes from seed to seed. nanoGPT fixes its seed, so a shift is added to it. Both losses are of the whole
validation split after the last step, in windows that do not overlap. Seconds of steps are those of the training steps
alone; an iteration of nanoGPT that evaluates counts as a median one. Seconds of the command have everything: the start,
evaluations, and our proofs. Each pair is written as it ends, and a later call goes on with the missing ones.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch

from assay import __version__
from assay.files import write_file
from assay.hardware import detect
from assay.store.history import steps as steps_of
from assay.store.run_folder import RunFolder
from peers import nanogpt_checkpoint
from ratios import mean_ratio

PRESET = "shakespeare-speedrun"
STEPS, EVERY, CONTEXT = 2000, 250, 64
SETTINGS = {
    "device": "cpu",
    "compile": False,
    "eval_iters": 20,
    "eval_interval": EVERY,
    "log_interval": 1,
    "block_size": CONTEXT,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "max_iters": STEPS,
    "lr_decay_iters": STEPS,
    "dropout": 0.0,
    "always_save_checkpoint": True,
}
"""Those of nanoGPT's README for a CPU; all iterations are logged, and the last checkpoint is kept."""
_SHIFTED = """
import runpy, sys, torch
seeded, shift = torch.manual_seed, int(sys.argv[1])
torch.manual_seed = lambda seed: seeded(seed + shift)
sys.argv = ["train.py", *sys.argv[2:]]
runpy.run_path("train.py", run_name="__main__")
"""
_LOGGED = re.compile(r"^iter (\d+): loss [\d.]+, time ([\d.]+)ms", re.MULTILINE)

Figures = dict[str, float]
"""Of one run: `loss`, `steps`, `step_seconds` (of all steps together) and `command_seconds`."""


def theirs(folder: Path, seed: int) -> Figures:
    """Run nanoGPT's script in its folder."""
    words = [f"--{name}={value}" for name, value in SETTINGS.items()]
    command = [sys.executable, "-c", _SHIFTED, str(seed), "config/train_shakespeare_char.py", *words]
    printed, seconds = _timed(command, folder)
    times = {int(number): float(spent) / 1e3 for number, spent in _LOGGED.findall(printed)}
    usual = median(spent for number, spent in times.items() if number % EVERY)
    loss = nanogpt_checkpoint(folder, folder / "out-shakespeare-char" / "ckpt.pt")
    ids = np.fromfile(folder / "data" / "shakespeare_char" / "val.bin", dtype=np.uint16)
    return {
        "loss": whole_split(loss, torch.from_numpy(ids.astype(np.int64))),
        "steps": STEPS,
        "step_seconds": sum(times[number] if number % EVERY else usual for number in range(STEPS)),
        "command_seconds": seconds,
    }


def ours(text: Path, home: Path, seed: int) -> Figures:
    """Run our preset from the command line."""
    words = [PRESET, f"data.path={text}", f"seed={seed}", "--json"]
    command = [str(Path(sys.executable).with_name("assay")), "train", *words]
    printed, seconds = _timed(command, home)
    result = json.loads(printed)
    taken = steps_of(RunFolder(home / ".assay" / "runs" / result["run"]).events())
    return {
        "loss": result["val_loss"],
        "steps": len(taken),
        "step_seconds": sum(one.seconds for one in taken),
        "command_seconds": seconds,
    }


def whole_split(loss: Any, ids: torch.Tensor) -> float:
    """Return the mean of `loss(inputs, targets)` over a split, each token but the first a target once."""
    windows, rest = divmod(len(ids) - 1, CONTEXT)
    cut = windows * CONTEXT
    total = 0.0
    with torch.no_grad():
        for first in range(0, cut, 64 * CONTEXT):
            last = min(cut, first + 64 * CONTEXT)
            pair = (ids[first:last].view(-1, CONTEXT), ids[first + 1 : last + 1].view(-1, CONTEXT))
            total += loss(*pair).item() * (last - first)
        if rest:
            total += loss(ids[None, cut:-1], ids[None, cut + 1 :]).item() * rest
    return total / (len(ids) - 1)


def report(pairs: list[dict[str, Any]]) -> str:
    """Return the table as Markdown, with the ratio of both sides' seconds."""
    lines = [
        "# The speedrun\n",
        f"`python benchmarks/speedrun.py --nanogpt FOLDER --text input.txt --seeds {len(pairs)}`: "
        f"{pairs[0]['machine']}; torch {torch.__version__}, assay {__version__}.\n",
        "Both columns of seconds are sums over a whole run. Losses are of the whole validation split.\n",
        "| seed | nanoGPT loss | of steps, s | command, s | ours loss | of steps, s | command, s |",
        "|---|---|---|---|---|---|---|",
    ]
    columns = (("loss", 4), ("step_seconds", 1), ("command_seconds", 1))
    for pair in pairs:
        cells = [f"{pair[side][name]:.{digits}f}" for side in _SIDES for name, digits in columns]
        lines.append(f"| {pair['seed']} | {' | '.join(cells)} |")
    means = [_spread([pair[side][name] for pair in pairs], digits) for side in _SIDES for name, digits in columns]
    lines.append(f"| mean ± deviation | {' | '.join(means)} |\n")
    for name, title in (("step_seconds", "steps"), ("command_seconds", "the whole command")):
        ratio = mean_ratio([pair["ours"][name] / pair["nanogpt"][name] for pair in pairs])
        lines.append(f"Seconds of {title}, ours over nanoGPT's: {ratio}.")
    return "\n".join(lines) + "\n"


_SIDES = ("nanogpt", "ours")


def _spread(values: list[float], digits: int) -> str:
    """Return a mean and a deviation over seeds."""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{deviation}"


def _timed(command: list[str], place: Path) -> tuple[str, float]:
    """Return what a command printed, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:6])} … ended with code {done.returncode}: {done.stderr[-800:]}")
    return done.stdout, time.perf_counter() - began


def _prepared(source: Path, text: Path, place: Path) -> Path:
    """Return a copy of nanoGPT with its data prepared by its own script."""
    folder = place / "nanogpt"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git"))
    data = folder / "data" / "shakespeare_char"
    shutil.copy(text, data / "input.txt")
    _timed([sys.executable, "prepare.py"], data)
    return folder


def main() -> None:
    """Run the missing pairs, and write the table."""
    parser = argparse.ArgumentParser(description="Hold our fastest recipe against nanoGPT's own script.")
    parser.add_argument("--nanogpt", type=Path, required=True, metavar="PATH", help="a folder with nanoGPT's sources")
    parser.add_argument("--text", type=Path, required=True, metavar="PATH", help="tinyshakespeare")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100, help="far from those by which settings were chosen")
    parser.add_argument("--out", type=Path, default=Path("speedrun"), help="two files: .json and .md")
    chosen = parser.parse_args()
    record = chosen.out.with_suffix(".json")
    pairs: list[dict[str, Any]] = json.loads(record.read_text()) if record.exists() else []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        folder = _prepared(chosen.nanogpt, chosen.text.resolve(), place)
        for number in range(len(pairs), chosen.seeds):
            seed = chosen.first_seed + number
            pair: dict[str, Any] = {"seed": seed, "machine": str(detect().processor)}
            for side in _SIDES if number % 2 == 0 else _SIDES[::-1]:
                pair[side] = theirs(folder, seed) if side == "nanogpt" else ours(chosen.text.resolve(), place, seed)
                print(f"seed {seed}, {side}: {pair[side]}", flush=True)
            pairs.append(pair)
            write_file(record, json.dumps(pairs, indent=1).encode())
    chosen.out.with_suffix(".md").write_text(report(pairs))


if __name__ == "__main__":
    main()
