"""Run honest configurations of every kind, and count those that the proof refuses.

    python benchmarks/honest_runs.py --count 300 [--first 0] [--jobs 2] [--weighted] [--out FILE]

Every number draws one configuration of all that one may ask: a GPT-shaped, Llama-shaped or mixture model, with dropout
or none; a rate up to 0.1, a schedule, 8 to 1,000 steps, a batch, clipping or none, a text, a seed, one or two threads;
and a stack of one to three techniques that a CPU runs. One in ten is stopped by its number of steps and resumed. A run
that ends as diverged or out of memory is honest. One whose values, effect or end are not proven is refused.

Each run appends a line to `--rows`, by default beside `--out`. A number that is there is not run again, so that the
measurement can be stopped and continued. `--weighted` draws 16-bit stacks at rates of 0.01 and more only.
"""

import argparse
import json
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from assay import api
from assay.api import configure
from assay.config import Home
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import catalogue, check, resolve_run
from assay.records.status import Status

NARROW = ("bf16_mixed", "bf16_full", "fp16_mixed", "fp16_full", "fp8")
SPREAD = ("compile",)
"""Techniques that take tens of seconds on any model; tests run them."""
HONEST = (Status.DONE, Status.DIVERGED, Status.OUT_OF_MEMORY)
RATES = ((0.0003, 0.001, 0.003, 0.006), (0.01, 0.02, 0.05, 0.1))
STEPS = ((8, 12, 20, 40, 80), (200, 300, 500, 1000))
RESUMED = 0.1
PATIENCE_SECONDS = 600.0

Row = dict[str, Any]


def drawn(number: int, text: Path | None, *, weighted: bool) -> tuple[list[str], str, bool]:
    """Return overrides of `demo`, a stack that this machine can run with them, and whether the run is resumed."""
    dice, machine = random.Random(number), detect()
    names = NARROW if weighted else tuple(name for name in catalogue() if name not in SPREAD)
    while True:
        high = weighted or dice.random() < 0.4
        long = dice.random() < 0.16
        words = [*_model(dice), *_training(dice, high=high, long=long), *_text(dice, text)]
        stack = _stack(dice, names, weighted=weighted)
        try:
            check(resolve_run(configure("demo", words, stack)), machine)
        except UsageError:
            continue
        return words, stack, dice.random() < RESUMED


def _stack(dice: random.Random, names: Sequence[str], *, weighted: bool) -> str:
    count = dice.choice([1, 2, 3])
    if not weighted:
        return "+".join(dice.sample(names, count))
    others = [name for name in catalogue() if name not in (*NARROW, *SPREAD)]
    return "+".join([dice.choice(names), *dice.sample(others, count - 1)])


def _model(dice: random.Random) -> Iterator[str]:
    heads = dice.choice([1, 2, 4])
    yield f"model.n_layer={dice.choice([1, 2, 3])}"
    yield f"model.n_head={heads}"
    yield f"model.n_embd={heads * dice.choice([8, 16, 32])}"
    yield f"model.context_length={dice.choice([16, 32, 64])}"
    yield f"model.dropout={dice.choice([0.0, 0.0, 0.1])}"
    shape = dice.choice(["gpt", "llama", "mixture"])
    if shape == "llama":
        yield from ("model.norm=rms", "model.position=rotary", "model.activation=swiglu", "model.bias=false")
        yield f"model.n_kv_head={dice.choice([one for one in (1, 2, 4) if heads % one == 0])}"
        yield f"model.qk_norm={dice.choice(['true', 'false'])}"
    if shape == "mixture":
        yield f"model.n_expert={dice.choice([2, 4])}"


def _training(dice: random.Random, *, high: bool, long: bool) -> Iterator[str]:
    rate = dice.choice(RATES[high])
    yield f"training.learning_rate={rate}"
    yield f"training.min_learning_rate={rate / 100}"
    yield f"training.schedule={dice.choice(['constant', 'cosine'])}"
    yield f"training.steps={dice.choice(STEPS[long])}"
    yield f"training.warmup_steps={dice.choice([0, 2, 5])}"
    yield f"training.batch_size={dice.choice([2, 3, 4, 8])}"
    yield f"training.gradient_clip={dice.choice([0, 0.5, 1])}"
    yield from ("training.eval_batches=2", f"training.eval_interval={dice.choice([0, 5])}")
    yield f"threads={dice.choice([1, 1, 2])}"
    yield f"seed={dice.randrange(1000)}"


def _text(dice: random.Random, text: Path | None) -> Iterator[str]:
    if text is not None and dice.random() < 0.5:
        yield f"data.path={text}"
    yield from ("data.max_bytes=120000", f"data.tokenizer={dice.choice(['char', 'byte'])}")


def run(number: int, text: Path | None, weighted: bool) -> Row:
    """Train one configuration in a home of its own, and return what came of it."""
    warnings.simplefilter("ignore")
    words, stack, resumed = drawn(number, text, weighted=weighted)
    row: Row = {"number": number, "words": words, "stack": stack, "resumed": resumed}
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place))
        try:
            found = api.train("demo", *words, optimizations=stack, home=home, timeout=PATIENCE_SECONDS)
            if resumed and found.status is Status.DONE:
                more = f"training.steps={found.steps + 8}"
                found = api.train(None, more, resume=found.run, home=home, timeout=PATIENCE_SECONDS)
        except UsageError as reason:
            return row | {"status": "not run", "said": str(reason)}
    proof = found.values
    proven = found.status is not Status.DONE or (
        proof is not None
        and proof.verdict
        and found.proven_until == "end"
        and all(one.verdict for one in found.evidence)
    )
    said = found.reason or (str(proof and (proof.failures or proof.unchecked)) if not proven else "")
    status = found.status.value if found.status not in HONEST or proven else "not proven"
    return row | {"status": status, "said": said, "baseline_steps": proof and proof.baseline_steps}


def refused(row: Row) -> bool:
    """True if an honest run was not accepted."""
    return row["status"] not in (*(one.value for one in HONEST), "not run")


def value(row: Row, key: str) -> float:
    """Return the figure of an override."""
    return next(float(one.partition("=")[2]) for one in row["words"] if one.startswith(f"{key}="))


def report(rows: Sequence[Row], command: str) -> str:
    """Return the tables in Markdown."""
    kinds = {
        "all": rows,
        "rates of 0.01 and more": [one for one in rows if value(one, "training.learning_rate") >= RATES[1][0]],
        "200 steps and more": [one for one in rows if value(one, "training.steps") >= STEPS[1][0]],
        "16 or 8 bits": [one for one in rows if any(name in one["stack"].split("+") for name in NARROW)],
        "mixtures": [one for one in rows if any(word.startswith("model.n_expert") for word in one["words"])],
        "resumed": [one for one in rows if one["resumed"]],
    }
    lines = [
        "# Honest runs that the proof refuses\n",
        "<!-- Written by benchmarks/honest_runs.py. -->\n",
        f"`{command}`. Random configurations as real runs. An honest run is refused if it ends with wrong values,",
        "without effect or not proven.\n",
        "| runs | number | refused | ends |",
        "| --- | --- | --- | --- |",
    ]
    for name, those in kinds.items():
        ends = ", ".join(f"{count} {status}" for status, count in Counter(one["status"] for one in those).most_common())
        lines.append(f"| {name} | {len(those)} | {sum(map(refused, those))} | {ends} |")
    lines += [
        f"\n- {one['number']}: {one['status']}, `{one['stack']}`, `{' '.join(one['words'])}`: {one['said']}"
        for one in rows
        if refused(one)
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--text", type=Path, help="a text that half of the runs train on; others have the built-in one")
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("honest_runs.md"))
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    place: Path = options.rows or options.out.with_suffix(".jsonl")
    rows: list[Row] = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    wanted = range(options.first, options.first + options.count)
    missing = sorted(set(wanted) - {one["number"] for one in rows})
    with ProcessPoolExecutor(options.jobs) as pool, place.open("a") as out:
        for done in as_completed([pool.submit(run, number, options.text, options.weighted) for number in missing]):
            rows.append(row := done.result())
            print(json.dumps(row), file=out, flush=True)
            print(f"{len(rows)}: {row['number']} {row['status']} {row['stack']} {row['said']}", flush=True)
    command = f"python benchmarks/honest_runs.py --count {options.count} --first {options.first}"
    text = report([one for one in rows if one["number"] in wanted], command + " --weighted" * options.weighted)
    options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
