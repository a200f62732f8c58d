"""Measure the errors of correct values: 200 random configurations are recorded and compared with their references.

    python benchmarks/value_bounds.py [--count 200] [--trained 100] [--out docs/measured/values.md]
    python benchmarks/value_bounds.py --systematic 200

Every configuration draws a model (heads shared or not, learned or rotary positions, either norm, either order, a
mixture or not), a batch, a clipping norm and a stack of one to three techniques that this machine can run. Its first
three steps are recorded and checked in this process. A second table is of runs that have trained on text for up to 300
steps: weights and logits are larger then, and so are errors of rounding. The tables show, by kind of value, the largest
and the median use of the bound: error over bound, 1 being a failure. `values.nearness` has its factors from here, and
so have the bounds of techniques that round.
"""

import argparse
import random
import statistics
import sysconfig
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from assay.config import ModelConfig, ResolvedRun, Run, Spec, TrainingConfig
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import check, expected_of, optimizations_of, resolve_run
from assay.training.build import baseline, build
from assay.training.loop import read, take_step
from assay.values.baseline import References
from assay.values.check import Check
from assay.values.masks import source_of_masks
from assay.values.nearness import GRADIENT_RATIO, UPDATE_RATIO, Judged
from assay.values.recorded import Recorded
from assay.values.recorder import StepRecorder
from systematic_errors import Keeping, smallest_seen
from systematic_errors import table as levels_of

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
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
HIGH_RATE = 0.01


class RandomText:
    """Random tokens in place of a prepared corpus."""

    def __init__(self, vocabulary: int, length: int) -> None:
        self.ids = np.random.default_rng(0).integers(vocabulary, size=length).astype(np.uint16)
        self.train = self.validation = self

    def __len__(self) -> int:
        return len(self.ids)


class Text:
    """The source text of Python's standard library, byte by byte."""

    def __init__(self, length: int) -> None:
        folder = Path(sysconfig.get_path("stdlib"))
        text = b"".join(one.read_bytes() for one in sorted(folder.glob("*.py")))[:length]
        self.ids = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)
        self.train = self.validation = self

    def __len__(self) -> int:
        return len(self.ids)


def drawn(seed: int, vocabulary: int | None = None) -> ResolvedRun:
    """A run that this machine can do. Draws again while techniques exclude each other."""
    dice = random.Random(seed)
    while True:
        run = _draw(dice)
        if vocabulary:
            run = run.model_copy(update={"model": run.model.model_copy(update={"vocab_size": vocabulary})})
        try:
            check(run, detect())
        except UsageError:
            continue
        return run


def _draw(dice: random.Random) -> ResolvedRun:
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
    return resolve_run(
        Run(model=model, training=training, device="cpu", seed=dice.randrange(1000), optimizations=specs)
    )


Recipe = TypeVar("Recipe", bound=Check)


def recorded(run: ResolvedRun, place: Path, text: Any, first: int, kind: type[Recipe]) -> Recipe:
    """Train a run for `first` steps, record three more, and return their check, which has not begun."""
    device = torch.device("cpu")
    program = baseline(run, text, device)  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    step = build(program)
    torch.manual_seed(run.seed)
    expected = expected_of(run)
    for index in range(first):
        read(step, [take_step(step, index)])
    masks = source_of_masks(run, expected, device)
    recorder = StepRecorder(step, place, first=first, rounds_state=expected.rule.rounds_state, masks=masks)
    for index in range(first, first + 3):
        watched = recorder.watch(step, index)
        with recorder.hooked():
            taken = take_step(watched, index)
        (record,) = read(watched, [taken])
        recorder.stepped(index, record.loss, record.log_gradient_norm, record.learning_rate)
    recorder.close()
    return kind(Recorded(place), run, expected, text, device, References(run, expected, text, device))


def judged(run: ResolvedRun, place: Path, text: Any, first: int = 0) -> tuple[list[Judged], list[str]]:
    """Every value of three steps against its bound, and the failures among the other checks.

    `first` is the number of steps that the run trains before.
    """
    one = recorded(run, place, text, first, Check)
    return one.judged(), list(one.proof().failures)


Levels = dict[str, list[dict[str, float]]]
"""The smallest levels of errors that are seen in each draw, by kind of run."""


def systematic(count: int, text: Any) -> tuple[Levels, Levels]:
    """The smallest errors that are seen in random runs in mixed precision, by kind of run.

    The first levels are of errors in one step after some training; the second of errors in all steps, of which that
    step and one of the first three are compared.
    """
    late: Levels = defaultdict(list)
    whole: Levels = defaultdict(list)
    for seed in range(count):
        rate, first = RATES[seed % len(RATES)], (10, 30, 100)[seed % 3]
        run = drawn(seed, vocabulary=256)
        changes = {"learning_rate": rate, "min_learning_rate": rate / 10, "warmup_steps": 2, "steps": first + 10}
        training = run.training.model_copy(update={**changes, "schedule": "constant"})
        run = run.model_copy(update={"training": training, "optimizations": (Spec(name="bf16_mixed"),)})
        seen = []
        for begun in (first, 0):
            with tempfile.TemporaryDirectory() as place:
                seen.append(smallest_seen(recorded(run, Path(place), text, begun, Keeping)))
        dense = f"rate {'up to 0.003' if rate < HIGH_RATE else 'of 0.01 and more'}"
        kind = "mixtures" if run.model.n_expert else dense
        late[kind].append(seen[0])
        whole[kind].append({name: min(one[name] for one in seen) for name in seen[0]})
        print(f"{seed} at {rate} after {first}: {[list(one.values()) for one in seen]}", flush=True)
    return late, whole


Used = dict[tuple[str, str], list[float]]
"""Errors over their bounds, by kind of value and kind of bound."""


def measured(runs: Iterable[tuple[ResolvedRun, int]], text: Callable[[ResolvedRun], Any]) -> tuple[Used, list[str]]:
    """Every value of some runs, each after so many steps of training, and the failures."""
    found: Used = defaultdict(list)
    failures = []
    for number, (run, first) in enumerate(runs):
        expected = expected_of(run)
        with tempfile.TemporaryDirectory() as place:
            values, failed = judged(run, Path(place), text(run), first)
        updates = expected.updates.loosened(expected.joint_updates)
        for one in values:
            close = updates if one.what in ("update", "state", "step", "decay") else expected.gradients
            found[one.what, close.kind].append(one.used)
        stack = "+".join(map(str, run.optimizations))
        worst = max(values, key=lambda one: one.used)
        print(f"{number + 1} after {first}: {worst.used:.3g} ({worst.what}, {worst.error:.1e}) {stack}", flush=True)
        failures += [f"{stack}, after {first} steps: {sentence}" for sentence in failed]
    return found, failures


def table(found: Used) -> Iterator[str]:
    """The rows of a table."""
    yield "| value | kind | values | median | 99th percentile | largest |\n| --- | --- | --- | --- | --- | --- |"
    for (what, kind), used in sorted(found.items()):
        used.sort()
        figures = statistics.median(used), used[int(0.99 * (len(used) - 1))], used[-1]
        yield f"| {what} | {kind} | {len(used)} | " + " | ".join(f"{one:.3g}" for one in figures) + " |"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--trained", type=int, default=100)
    parser.add_argument("--systematic", type=int, default=0, help="draws of the table of systematic errors")
    parser.add_argument("--out", type=Path)
    options: Any = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if options.systematic:
        for levels in systematic(options.systematic, Text(200_000)):
            print(*levels_of(levels), "", sep="\n")
        return
    new = ((drawn(seed), 0) for seed in range(options.count))
    trained = ((drawn(seed, vocabulary=256), (10, 60, 300)[seed % 3]) for seed in range(options.trained))
    book = Text(200_000)
    first, failed = measured(new, lambda run: RandomText(run.model.vocabulary, 5000))
    later, more = measured(trained, lambda run: book)
    lines = [
        "# How near honest values are to their references\n",
        f"`python benchmarks/value_bounds.py --count {options.count} --trained {options.trained}`, torch "
        f"{torch.__version__}. Random",
        "configurations on one device, three steps each. Figures are error over bound.\n",
        f"The first steps of {options.count} configurations, on random tokens; {len(failed)} failures:\n",
        *table(first),
        f"\nThree steps of {options.trained} others after 10, 60 or 300 steps on text; {len(more)} failures:\n",
        *table(later),
        f"\nA gradient's bound is {GRADIENT_RATIO:g} times the float32 baseline's own error, and an update's",
        f"{UPDATE_RATIO:g} roundoffs of the step and 2 of the weight (`assay.values.nearness`).",
        *(f"\n- {one}" for one in (*failed, *more)),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
