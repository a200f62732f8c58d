"""How far off are honest values? 200 random configurations are recorded and held against their references.

    python benchmarks/value_bounds.py [--count 200] [--out docs/measured/values.md]

Every configuration draws a model (heads shared or not, learned or rotary positions, either norm, either order, a
mixture or not), a batch, a clipping norm and a stack of one to three techniques that this machine can run. Its first
three steps are recorded and checked in this process. The table says, by kind of value, the largest and the median use
of the bound: error over bound, 1 being a failure. `values.nearness` has its factors from here.
"""

import argparse
import random
import statistics
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import check, expected_of, normalize, optimizations_of
from assay.training.build import baseline, build
from assay.training.loop import read, take_step
from assay.values.check import Check
from assay.values.nearness import GRADIENT_RATIO, UPDATE_RATIO, Judged
from assay.values.recorded import Recorded
from assay.values.recorder import StepRecorder

STACK = (
    "vocab_padding",
    "chunked_cross_entropy:chunks=3",
    "sdpa_attention",
    "bf16_mixed",
    "bf16_full",
    "fp16_mixed",
    "fp16_full",
    "fp8",
    "activation_checkpointing",
    "selective_checkpointing",
    "adafactor",
    "adam",
    "adamw_8bit",
    "adamw_bf16_state",
    "foreach_adamw",
    "fused_adamw",
    "lion",
    "muon",
    "sgd",
    "weight_tying",
    "gradient_accumulation:micro_batches=2",
    "smaller_batch",
    "deferred_metrics",
    "optimizer_in_backward",
)


class RandomText:
    """Random tokens in place of a prepared corpus."""

    def __init__(self, vocabulary: int, length: int) -> None:
        self.ids = np.random.default_rng(0).integers(vocabulary, size=length).astype(np.uint16)
        self.train = self.validation = self

    def __len__(self) -> int:
        return len(self.ids)


def drawn(seed: int) -> Run:
    """A run that this machine can do. Draws again while techniques exclude each other."""
    dice = random.Random(seed)
    while True:
        run = _draw(dice)
        try:
            check(run, detect())
        except UsageError:
            continue
        return run


def _draw(dice: random.Random) -> Run:
    heads, tied = dice.choice([1, 2, 4]), dice.random() < 0.5
    model = ModelConfig(
        n_layer=dice.choice([1, 2, 4]),
        n_head=heads,
        n_kv_head=dice.choice([count for count in (1, 2, 4) if heads % count == 0]),
        n_embd=heads * dice.choice([8, 16, 32]),
        context_length=dice.choice([8, 16, 48]),
        vocab_size=dice.choice([61, 130, 1000]),
        bias=dice.random() < 0.5,
        dropout=dice.choice([0.0, 0.0, 0.1]),
        norm=dice.choice(["layer", "rms"]),
        norm_position=dice.choice(["pre", "post"]),
        position=dice.choice(["learned", "rotary"]),
        activation=dice.choice(["gelu", "gelu_tanh", "swiglu"]),
        qk_norm=dice.random() < 0.3,
        tie_embeddings=tied,
        n_expert=dice.choice([None, None, None, 4]),
    )
    training = TrainingConfig(
        batch_size=dice.choice([4, 8]),
        steps=10,
        warmup_steps=dice.choice([0, 2, 100]),
        gradient_clip=dice.choice([0.0, 1.0, 0.05]),
        weight_decay=dice.choice([0.01, 0.1]),
    )
    names = dice.sample(STACK, dice.choice([1, 2, 3]))
    specs = tuple(Spec.parse(name) for name in names)
    return normalize(Run(model=model, training=training, device="cpu", seed=dice.randrange(1000), optimizations=specs))


def judged(run: Run, place: Path) -> tuple[list[Judged], list[str]]:
    """Every value of a run against its bound, and what failed beside them."""
    text, device = RandomText(run.model.vocabulary, 5000), torch.device("cpu")
    program = baseline(run, text, device)  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    step = build(program)
    torch.manual_seed(run.seed)
    expected = expected_of(run)
    recorder = StepRecorder(step, place, rounds_state=expected.rule.rounds_state)
    if run.model.dropout > 0 and not expected.same_noise:
        recorder.probe()
    for index in range(3):
        watched = recorder.watch(step, index)
        with recorder.hooked():
            taken = take_step(watched, index)
        (record,) = read(watched, [taken])
        recorder.stepped(index, record.loss, record.log_gradient_norm, record.learning_rate)
    recorder.close()
    one = Check(Recorded(place), run, expected, text, device)  # type: ignore[arg-type]
    return one.judged(), list(one.proof().failures)


def report(found: dict[tuple[str, str], list[float]], count: int, failures: list[str]) -> Iterator[str]:
    """The page."""
    yield "# How near honest values are to their references\n"
    yield f"`python benchmarks/value_bounds.py --count {count}`, torch {torch.__version__}. {count} random"
    yield f"configurations on one device, three steps each; {len(failures)} failures. Error over bound, 1 being one:\n"
    yield "| value | kind | values | median | 99th percentile | largest |\n| --- | --- | --- | --- | --- | --- |"
    for (what, kind), used in sorted(found.items()):
        used.sort()
        figures = statistics.median(used), used[int(0.99 * (len(used) - 1))], used[-1]
        yield f"| {what} | {kind} | {len(used)} | " + " | ".join(f"{one:.3g}" for one in figures) + " |"
    yield f"\nA gradient's bound is {GRADIENT_RATIO:g} times the float32 baseline's own error, and an update's"
    yield f"{UPDATE_RATIO:g} roundoffs of the step and 2 of the weight (`assay.values.nearness`)."
    for one in failures:
        yield f"\n- {one}"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options: Any = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    failures = []
    for seed in range(options.count):
        run = drawn(seed)
        expected = expected_of(run)
        with tempfile.TemporaryDirectory() as place:
            values, failed = judged(run, Path(place))
        for one in values:
            close = expected.updates if one.what in ("update", "state") else expected.gradients
            found[one.what, close.kind].append(one.used)
        stack = "+".join(map(str, run.optimizations))
        print(f"{seed + 1}/{options.count} {max(one.used for one in values):.3g} {stack}", flush=True)
        failures += [f"{seed}: {stack}: {sentence}" for sentence in failed]
    text = "\n".join(report(found, options.count, failures)) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
