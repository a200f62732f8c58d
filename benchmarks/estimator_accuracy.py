"""Compare predicted with measured step times, for random shapes and stacks on which nothing was tuned.

    python benchmarks/estimator_accuracy.py [--threads 1] [--shapes 16] [--seed 0] [--out FILE.json] [--page FILE.md]

Each shape has an untreated row, one or two stacks in which fused attention and 16-bit formats interact, and one more
that is drawn. For each stack three models train in processes of their own, by the program of `assay estimate
--calibrate`: those of one and of three blocks, from which the step time is predicted, and the whole one. All models of
a shape take turns, because machines become faster and slower by half within seconds. An error is the median over turns
of the extrapolated over the measured seconds. The untreated model trains twice, which shows by how much equal processes
differ. A change counts as distinguishable if it is more than twice that, and at least 5 %.

Shapes are written one by one, so the benchmark can be interrupted and begun again. A shape takes a minute or two.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from assay import api
from assay.config import Home, ResolvedRun
from assay.estimator import estimate
from assay.estimator.timing.step_time import at_depth
from assay.files import write_file
from assay.hardware.rates import known_machine
from assay.hardware.step_times import StepTimes, Task, depths
from assay.launch.rates import measured_machine
from assay.launch.step_times import Stopwatch
from assay.optimizations import resolve_run

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
_SECONDS = 40.0
"""Seconds of the turns of a shape."""
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
        seconds = estimate(resolve_run(api.configure("demo", settings)), machine).step_seconds
        if seconds is not None and _SHORTEST <= seconds <= _LONGEST:
            return settings


def stacks(number: int, seed: int) -> tuple[str, ...]:
    """Return the stacks of a shape; every other one has a compiled one, which takes long."""
    other = random.Random(f"{seed} {number} stack").choice(OTHERS)
    return ("", AGAIN, INTERACTING[0], *((INTERACTING[1],) if number % 2 else ()), other)


def rows_of(number: int, seed: int, threads: int, home: Home) -> list[Row]:
    """Predict and measure every stack of a shape, all in turns."""
    machine = measured_machine(home, threads)
    settings = shape(number, seed, threads, machine)
    names = stacks(number, seed)
    runs = [resolve_run(api.configure("demo", settings, [one] if one not in ("", AGAIN) else [])) for one in names]
    models = [at_depth(run, layers) for run in runs for layers in (*depths(run.model.n_layer), run.model.n_layer)]
    turns = _turns(models, home)
    rows = []
    for place, (stack, run) in enumerate(zip(names, runs, strict=True)):
        own = [turn[3 * place : 3 * place + 3] for turn in turns]
        layers, roofline = run.model.n_layer, estimate(run, machine).roofline_seconds
        times = StepTimes(depths=depths(layers), turns=tuple((shallow, deep) for shallow, deep, _ in own))
        assert roofline is not None
        measured = statistics.median(whole for *_, whole in own)
        ratios = [
            _alone(times, turn).seconds(layers) / whole for turn, (*_, whole) in zip(times.turns, own, strict=True)
        ]
        predicted = statistics.median(ratios) * measured
        rows.append(Row(number, stack, settings, predicted, times.margin(layers), roofline, measured))
    return rows


def _alone(times: StepTimes, turn: tuple[float, ...]) -> StepTimes:
    return times.model_copy(update={"turns": (turn,)})


def _turns(runs: Sequence[ResolvedRun], home: Home) -> tuple[tuple[float, ...], ...]:
    """Time all runs in turns, by the program that times steps of few blocks."""
    task = Task(digest="", runs=tuple(runs), seconds=_SECONDS)
    with Stopwatch(home) as stopwatch:
        answer = stopwatch.answer(task)
    if answer.times is None:
        raise SystemExit(f"the steps were not timed: {answer.refused}")
    return answer.times.turns


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
        f"{known_machine(Home()).processor}, torch {version('torch')}."
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
        f" {inside} of {len(distinct)} measured times are inside the stated interval.",
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
            found = rows_of(number, chosen.seed, chosen.threads, Home(place))
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
