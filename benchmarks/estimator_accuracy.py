"""Compare predicted with measured step times, for random shapes and stacks on which nothing was tuned.

    python benchmarks/estimator_accuracy.py [--threads 1] [--shapes 16] [--seed 0] [--out FILE.json] [--page FILE.md]

Each shape has an untreated row, two stacks in which fused attention and 16-bit formats interact, and one more that is
drawn. Steps of few blocks are timed for each, as `assay estimate --calibrate` does; then each stack trains in a process
of its own. The untreated row trains twice, which shows by how much equal processes differ. A change counts as
distinguishable if it is more than twice that of the equal processes of its shape, and at least 5 %.

Rows are written one by one, so the benchmark can be interrupted and begun again. It takes about a minute a shape. Run
it on an idle machine.
"""

import argparse
import json
import math
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from assay import api
from assay.config import Home
from assay.estimator import estimate
from assay.files import write_file
from assay.hardware.rates import known_machine
from assay.launch.rates import measured_machine
from assay.launch.step_times import calibrate
from assay.optimizations import resolved

INTERACTING = (
    "sdpa_attention+bf16_mixed+activation_checkpointing",
    "sdpa_attention+compile+fused_adamw+bf16_mixed",
)
"""Stacks whose roofline has the wrong sign on a processor with bfloat16 products."""
OTHERS = (
    "activation_checkpointing",
    "bf16_mixed",
    "bf16_full",
    "sdpa_attention",
    "gradient_accumulation:micro_batches=2",
    "chunked_cross_entropy",
    "fused_adamw",
    "lion",
    "compile",
    "selective_checkpointing",
)
AGAIN = "again"
_LONGEST, _SHORTEST = 0.15, 0.008
"""Seconds of an untreated step by the roofline that a drawn shape may take."""
_MEASURED_SECONDS = 4.0
_LEAST_CHANGE = 0.05


class Row(NamedTuple):
    """One stack on one shape."""

    shape: int
    stack: str
    settings: list[str]
    predicted: float
    margin: float | None
    roofline: float
    measured: float
    calibration: float
    """Seconds that the calibration took."""

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    @property
    def roofline_error(self) -> float:
        """Relative error of the roofline."""
        return self.roofline / self.measured - 1


def shape(number: int, seed: int, threads: int, machine: Any) -> list[str]:
    """Draw a shape whose untreated step takes a bearable time."""
    drawn = random.Random(f"{seed} {number}")
    while True:
        heads, head = drawn.choice((2, 4, 6, 8)), drawn.choice((16, 24, 32, 48, 64))
        settings = [
            f"model.n_layer={drawn.randint(4, 12)}",
            f"model.n_head={heads}",
            f"model.n_embd={heads * head}",
            f"model.context_length={drawn.choice((64, 96, 128, 192, 256))}",
            f"model.vocab_size={drawn.choice((256, 512, 2048, 8192))}",
            f"model.activation={drawn.choice(('gelu', 'gelu_tanh', 'swiglu'))}",
            f"training.batch_size={drawn.choice((2, 4, 6, 8, 12, 16))}",
            f"threads={threads}",
        ]
        seconds = estimate(resolved(api.configure("demo", settings)), machine).step_seconds
        if seconds is not None and _SHORTEST <= seconds <= _LONGEST:
            return settings


def stacks(number: int, seed: int) -> tuple[str, ...]:
    """Return the stacks of a shape; every other one has a compiled one, which takes long."""
    other = random.Random(f"{seed} {number} stack").choice(OTHERS)
    return ("", AGAIN, INTERACTING[0], *((INTERACTING[1],) if number % 2 else ()), other)


def rows_of(number: int, seed: int, threads: int, home: Home) -> Iterator[Row]:
    """Predict and measure every stack of a shape."""
    machine = measured_machine(home, threads)
    settings = shape(number, seed, threads, machine.model_copy(update={"step_times": {}}))
    for stack in stacks(number, seed):
        names = [stack] if stack not in ("", AGAIN) else []
        run = resolved(api.configure("demo", settings, names))
        began = time.perf_counter()
        untimed = calibrate([run], home, threads, seconds=120.0)
        spent = time.perf_counter() - began
        if untimed:
            print(f"shape {number}: {untimed}")
        machine = known_machine(home, threads)
        found = estimate(run, machine).step_time
        roofline = estimate(run, machine.model_copy(update={"step_times": {}})).step_seconds
        assert found is not None
        assert roofline is not None
        measured = _measured(settings, names, found.seconds, home)
        yield Row(number, stack, settings, found.seconds, found.margin, roofline, measured, spent)


def _measured(settings: Sequence[str], names: Sequence[str], expected: float, home: Home) -> float:
    steps = max(16, min(80, round(_MEASURED_SECONDS / expected)))
    changes = (*settings, f"training.steps={steps}", "training.eval_interval=0", "training.eval_batches=1")
    quick = ("training.check_values=false", "training.measure_memory=false", "training.warmup_steps=1")
    result = api.train("demo", *changes, *quick, optimizations=names, home=home)
    if result.step_seconds is None:
        raise SystemExit(f"{names} did not train: {result.reason}")
    return float(result.step_seconds.median)


class Signs(NamedTuple):
    """Changes against the untreated row that can be told from chance, and how many a prediction has the sign of."""

    changes: int
    right: int
    by_roofline: int


def signs(rows: Sequence[Row]) -> Signs:
    """Count the distinguishable changes of all shapes."""
    found = []
    for number in dict.fromkeys(one.shape for one in rows):
        mine = {one.stack: one for one in rows if one.shape == number}
        if not {"", AGAIN} <= mine.keys():
            continue
        base, noise = mine[""], abs(math.log(mine[AGAIN].measured / mine[""].measured))
        for stack, one in mine.items():
            change = math.log(one.measured / base.measured)
            if stack not in ("", AGAIN) and abs(change) > max(2 * noise, _LEAST_CHANGE):
                found.append(
                    (
                        change * math.log(one.predicted / base.predicted) > 0,
                        change * math.log(one.roofline / base.roofline) > 0,
                    )
                )
    return Signs(len(found), sum(right for right, _ in found), sum(by for _, by in found))


def page(rows: Sequence[Row], threads: int, seed: int) -> str:
    """Return the page with the figures of all rows, and every row."""
    distinct = [one for one in rows if one.stack != AGAIN]
    counted = signs(rows)
    inside = sum(abs(one.error) <= (one.margin or 0.0) for one in distinct)
    repeated = [abs(two.measured / one.measured - 1) for one in rows for two in rows if _same(one, two)]
    lines = [
        f"## {threads} thread{'s' * (threads > 1)}, seed {seed}",
        "",
        f"{platform.processor() or platform.machine()}, {known_machine(Home()).processor}, torch {version('torch')}."
        f" {len(distinct)} rows on {len({one.shape for one in rows})} shapes.",
        "",
        "| | median error | 95th percentile | signs right |",
        "|---|---|---|---|",
        f"| from timed steps of few blocks | {_line([one.error for one in distinct])} |"
        f" {counted.right} of {counted.changes} |",
        f"| by a roofline | {_line([one.roofline_error for one in distinct])} |"
        f" {counted.by_roofline} of {counted.changes} |",
        "",
        f"Equal processes differ by {statistics.median(repeated):.1%} in the median and at most {max(repeated):.1%}."
        f" {inside} of {len(distinct)} measured times are inside the stated interval. A calibration takes"
        f" {statistics.median(one.calibration for one in distinct):.1f} s in the median.",
        "",
        "| shape | stack | predicted | margin | measured | error | roofline's error |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in distinct:
        margin = "–" if one.margin is None else f"{one.margin:.0%}"
        lines.append(
            f"| {one.shape} | {one.stack or 'untreated'} | {one.predicted * 1e3:.1f} ms | {margin} |"
            f" {one.measured * 1e3:.1f} ms | {one.error:+.1%} | {one.roofline_error:+.1%} |"
        )
    return "\n".join(lines) + "\n"


def _same(one: Row, two: Row) -> bool:
    return one.shape == two.shape and (one.stack, two.stack) == ("", AGAIN)


def _line(errors: Sequence[float]) -> str:
    sizes = sorted(map(abs, errors))
    return f"{statistics.median(sizes):.1%} | {sizes[min(len(sizes) - 1, math.ceil(0.95 * len(sizes)) - 1)]:.1%}"


def main() -> None:
    """Measure the rows that the file does not have, and write the page."""
    parser = argparse.ArgumentParser(description="Compare predicted with measured step times.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("estimator_accuracy.json"))
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    rows = [Row(**one) for one in json.loads(chosen.out.read_bytes())] if chosen.out.exists() else []
    for number in range(chosen.shapes):
        if any(one.shape == number for one in rows):
            continue
        with tempfile.TemporaryDirectory() as place:
            found = list(rows_of(number, chosen.seed, chosen.threads, Home(place)))
        rows += found
        write_file(chosen.out, json.dumps([one._asdict() for one in rows], indent=1).encode())
        for one in found:
            print(
                f"{number} {one.stack or 'untreated'}: {one.error:+.1%}, roofline {one.roofline_error:+.1%}", flush=True
            )
    text = page(rows, chosen.threads, chosen.seed)
    print(text)
    if chosen.page is not None:
        write_file(chosen.page, text.encode())


if __name__ == "__main__":
    main()
