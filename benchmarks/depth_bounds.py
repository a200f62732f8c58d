"""Bounds of lossy gradients at the depth of GPT-2, beside the errors that a GPU had.

    python benchmarks/depth_bounds.py GRADIENTS.json [--steps 0 3 10 30] [--model gpt2-124m] [--tokens 256]

GRADIENTS.json has, for states of nanoGPT's GPT-2, the relative error of each tensor's gradient in bfloat16 with flash
attention on one NVIDIA H200, with and without cuBLAS's reduced-precision reductions. Here assay's GPT-2 of the same
shape trains as many steps on a CPU, on few tokens. Imitated rounding at its weights gives the bound of each tensor, as
the value check has it (`assay.values.pooled`). The table shows the bounds beside the GPU's errors, in groups of
tensors. A ratio above 1 would refuse the honest GPU.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch

from assay import api
from assay.config import ResolvedRun
from assay.optimizations import expected_of
from assay.optimizations.stack import resolved
from assay.training.build import baseline, build
from assay.training.loop import train_step
from assay.values.baseline import References
from assay.values.masks import Noise
from assay.values.nearness import unit_roundoff
from assay.values.pooled import AMPLIFIED, SEVERAL_GROUP_RATIO, TENSOR_RATIO, group_of
from support.corpora import RandomData

DRAWS = 3
MODES = {"bf16_flash": "reductions in bfloat16", "bf16_flash_full_reductions": "reductions in float32"}
NAMES = {"attn": "attention", "ln_": "norm", "mlp": "mlp"}
"""Parts of nanoGPT's names, and what assay's have."""


def distances(run: ResolvedRun, steps: int) -> dict[str, float]:
    """Return the relative distance that imitated rounding moves each tensor's gradient by, after some steps."""
    device, data = torch.device("cpu"), RandomData(run)
    step = build(baseline(run, data, device))  # type: ignore[arg-type]
    torch.manual_seed(run.seed)
    for index in range(steps):
        train_step(step, index)
    weights = {name: one.detach().clone() for name, one in step.named_parameters()}
    batches = list(step.program.batches(steps, step.program.parallel.share))
    del step
    expected = expected_of(run)
    references = References(run, expected, data, device)  # type: ignore[arg-type]
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


def rows(state: Mapping[str, Any], moved: Mapping[str, float]) -> Iterator[str]:
    """Yield a line of the table for each group of tensors."""
    unit, own = unit_roundoff(torch.bfloat16), in_groups(moved, {})
    spread = _mean(list(moved.values()))
    grown = min(1 + AMPLIFIED * (spread / unit) ** 2, 2.0)
    for group, those in own.items():
        errors = [in_groups(state[mode])[group] for mode in MODES]
        tensor, whole = TENSOR_RATIO * grown * _mean(those), SEVERAL_GROUP_RATIO * _mean(those)
        cells = [
            f"{max(one):.1e} ({max(one) / tensor:.2f}), {_mean(one):.1e} ({_mean(one) / whole:.2f})" for one in errors
        ]
        yield f"| {state['model']} | {state['step']} | {group} | {statistics.median(those):.1e} | {' | '.join(cells)} |"


def _mean(values: list[float]) -> float:
    return statistics.fmean(one * one for one in values) ** 0.5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradients", type=Path)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 3, 10, 30])
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    states = json.loads(options.gradients.read_text())
    print("| model | steps | tensors | imitation moves | " + " | ".join(MODES.values()) + " |")
    print("| --- | --- | --- | --- | --- | --- |")
    for steps in options.steps:
        words = [f"model.context_length={options.tokens}", "training.batch_size=1", "model.dropout=0", "device=cpu"]
        run = resolved(api.configure(options.model, words, ["bf16_mixed"]))
        moved = distances(run, steps)
        for state in states:
            if (state["model"], state["step"]) == (options.model, steps):
                print("\n".join(rows(state, moved)), flush=True)


if __name__ == "__main__":
    main()
