"""Compare a dense model with mixtures of equal arithmetic per token: do experts lower the loss on real text?

    python benchmarks/mixture_against_dense.py input.txt [--steps 1000] [--seeds 2]

Every model is `shakespeare-char-cpu` and does the same multiply-adds per token, apart from the router's: one active
expert of the dense width, or two of half that width. A mixture only has more weights. All models see the same batches
in the same order. The script prints, by seed, the validation loss over `--eval-batches` batches that are spread over
the held-out text. For each layer it prints the balance of its router (1 if all experts are equally busy) and the
busiest expert's tokens over the mean, both over the last quarter of the steps.
"""

import argparse
import platform
import tempfile
import time
from pathlib import Path

import torch

from assay.api import configure
from assay.config import Home, Run
from assay.cost import active_parameter_count, parameter_count
from assay.data import Prepared, prepare
from assay.training.batches import validation_batches
from assay.training.build import baseline, build
from assay.training.evaluation import evaluate
from assay.training.loop import train_step
from assay.training.probes import LayerRouting, RouterStatistics

CPU = torch.device("cpu")
VARIANTS: dict[str, tuple[str, ...]] = {
    "dense": (),
    "4 experts, 1 active": ("model.n_expert=4", "model.n_expert_active=1"),
    "4 experts of half width, 2 active": ("model.n_expert=4", "model.n_expert_active=2", "model.n_hidden=256"),
}


def train(run: Run, data: Prepared) -> tuple[float, list[LayerRouting]]:
    """The validation loss after the last step, and where routers sent the tokens of the last quarter."""
    step = build(baseline(run, data, CPU))
    routers = RouterStatistics(step)
    for index in range(run.training.steps):
        if index == run.training.steps * 3 // 4:
            routers.take()
        train_step(step, index)
    seen = evaluate(step, validation_batches(run, data, CPU), data.bytes_per_token, run.training.steps)
    return seen.loss, routers.take()


def report(name: str, run: Run, data: Prepared) -> None:
    """Train one model and print its line, and one for each layer with a router."""
    start = time.perf_counter()
    loss, layers = train(run, data)
    weights, active = parameter_count(run.model), active_parameter_count(run.model)
    seconds = time.perf_counter() - start
    print(
        f"seed {run.seed}  {name:<36} loss {loss:.4f}  {weights:>9} weights, {active} per token  {seconds:.0f} s",
        flush=True,
    )
    for index, layer in enumerate(layers):
        print(f"          layer {index}: balance {layer.balance:.3f}, busiest {layer.imbalance:.2f} times the mean")


def main() -> None:
    """Train every variant with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--eval-batches", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {options.steps} steps")
    training = [f"training.steps={options.steps}", f"training.eval_batches={options.eval_batches}"]
    with tempfile.TemporaryDirectory() as place:
        for seed in range(options.seeds):
            for name, fields in VARIANTS.items():
                changes = [f"data.path={options.text}", *training, f"seed={seed}", *fields]
                run = configure("shakespeare-char-cpu", changes)
                data = prepare(run.data, Home(place))
                report(name, run.with_vocabulary(data.vocab_size), data)


if __name__ == "__main__":
    main()
