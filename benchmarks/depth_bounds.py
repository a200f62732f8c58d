"""Bounds of lossy gradients at the depth of GPT-2, beside the errors that a GPU had.

    python benchmarks/depth_bounds.py GRADIENTS.json --text FILE [--steps 0 3 10 30] [--model gpt2-124m] [--tokens 256]

GRADIENTS.json has, for states of nanoGPT's GPT-2, the relative error of each tensor's gradient in bfloat16 with flash
attention on one NVIDIA H200, with and without cuBLAS's reduced-precision reductions. Here assay's GPT-2 of the same
shape trains as many steps on a CPU, on few tokens of a text, a byte each, at a rate of 6e-4 from the first step. So its
loss falls as quickly as theirs. Imitated rounding at its weights gives the bound of each tensor, as the value check has
it (`assay.values.pooled`). The table shows the bounds beside the GPU's errors, in groups of tensors. A ratio above 1
would refuse the honest GPU. The states of one model are one training, which is continued from state to state.
"""

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import torch
from torch import Tensor

from assay import api
from assay.config import ResolvedRun
from assay.optimizations import expected_of
from assay.optimizations.stack import resolve_run
from assay.training.build import baseline, build
from assay.training.loop import train_step
from assay.values.baseline import References
from assay.values.masks import Noise
from assay.values.nearness import unit_roundoff
from assay.values.pooled import AMPLIFIED, SEVERAL_GROUP_RATIO, TENSOR_RATIO, group_of
from support.random_data import RandomShard

DRAWS = 3
MODES = {"bf16_flash": "reductions in bfloat16", "bf16_flash_full_reductions": "reductions in float32"}
NAMES = {"attn": "attention", "ln_": "norm", "mlp": "mlp"}
"""Parts of nanoGPT's names, and what assay's have."""


class TextData:
    """Stands in for a prepared corpus: the bytes of a file are its tokens."""

    def __init__(self, path: Path) -> None:
        self.train = self.validation = RandomShard(np.frombuffer(path.read_bytes(), np.uint8).astype(np.uint16))


def states(run: ResolvedRun, data: TextData, after: Sequence[int]) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Train a model, and yield steps, loss and distances by rounding of each state that is asked for."""
    step = build(baseline(run, data, torch.device("cpu")))  # type: ignore[arg-type]
    torch.manual_seed(run.seed)
    loss, done = math.nan, 0
    for index in sorted(after):
        for one in range(done, index):
            loss = train_step(step, one).loss
        done = index
        weights = {name: one.detach().clone() for name, one in step.named_parameters()}
        batches = list(step.program.batches(index, step.program.parallel.share))
        yield index, loss, distances(run, data, weights, batches)


def distances(
    run: ResolvedRun, data: TextData, weights: Mapping[str, Tensor], batches: Sequence[Any]
) -> dict[str, float]:
    """Return the relative distance that imitated rounding moves each tensor's gradient by, at some weights."""
    expected = expected_of(run)
    references = References(run, expected, data, torch.device("cpu"))  # type: ignore[arg-type]
    noise, rounding = Noise({"cpu": torch.get_rng_state()}), expected.gradients.rounding
    assert rounding is not None
    truth = references.truth.at(weights, batches, noise).gradients
    squares: dict[str, float] = defaultdict(float)
    for draw in range(DRAWS):
        found = references.near.rounded_at(weights, batches, noise, rounding, draw=draw).gradients
        for name, true in truth.items():
            squares[name] += float((found[name].double() - true).norm() / true.norm()) ** 2 / DRAWS
    return {name: square**0.5 for name, square in squares.items()}


def in_groups(errors: Mapping[str, float], named: Mapping[str, str] = NAMES) -> dict[str, list[float]]:
    """Return the figures of tensors by the group that the value check has for them."""
    groups: dict[str, list[float]] = defaultdict(list)
    for name, error in errors.items():
        groups[group_of(next((own for part, own in named.items() if part in name), name))].append(error)
    return groups


def rows(state: Mapping[str, Any], loss: float, moved: Mapping[str, float]) -> Iterator[str]:
    """Yield a line of the table for each group of tensors."""
    unit, own = unit_roundoff(torch.bfloat16), in_groups(moved, {})
    spread = _mean(list(moved.values()))
    losses = f"{state['loss']:.2f}, {loss:.2f}"
    grown = min(1 + AMPLIFIED * (spread / unit) ** 2, 2.0)
    for group, those in own.items():
        errors = [in_groups(state[mode])[group] for mode in MODES]
        tensor, whole = TENSOR_RATIO * grown * _mean(those), SEVERAL_GROUP_RATIO * _mean(those)
        cells = [
            f"{max(one):.1e} ({max(one) / tensor:.2f}), {_mean(one):.1e} ({_mean(one) / whole:.2f})" for one in errors
        ]
        name = f"| {state['model']} | {state['step']} | {losses} | {group}"
        yield f"{name} | {statistics.median(those):.1e} | {' | '.join(cells)} |"


def _mean(values: list[float]) -> float:
    return statistics.fmean(one * one for one in values) ** 0.5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradients", type=Path)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 3, 10, 30])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--text", type=Path, required=True)
    options = parser.parse_args()
    gpu = {
        state["step"]: state for state in json.loads(options.gradients.read_text()) if state["model"] == options.model
    }
    print("| model | steps | loss, there and here | tensors | imitation moves | " + " | ".join(MODES.values()) + " |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    words = [f"model.context_length={options.tokens}", "training.batch_size=1", "model.dropout=0", "device=cpu"]
    words += ["training.schedule=constant", "training.learning_rate=6e-4", "training.warmup_steps=0"]
    run = resolve_run(api.configure(options.model, words, ["bf16_mixed"]))
    for steps, loss, moved in states(run, TextData(options.text), options.steps):
        for line in rows(gpu[steps], loss, moved):
            print(line, flush=True)


if __name__ == "__main__":
    main()
