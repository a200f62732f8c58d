"""GPT-2 124M at context 1024, from hand-coded fp32 to the full stack, one technique at a time.

    python benchmarks/ladder_gpt2_124m.py [KEY=VALUE ...] [--out PATH] [--minutes 7.5] [--memory 40GB] [--without NAME]

Each rung adds one technique to those before it, and runs at the batch of the rung before. If it frees memory, a second
run has the largest batch that fits by the ledger. The gain of a rung depends on the order. Therefore each technique is
then left out of the full stack, and added alone to the baseline, all at the first batch. A rung that is not available
on this machine is a row with the reason.

Memory is 40 GB by default, as on an A100, so that batches can be compared. A machine without GPU uses a small shape and
less memory, and compiles nothing, because that would take longer than all other cells (``--without ''`` compiles). The
script ends after `--minutes`; cells that are left then are rows with that reason. It needs GPT-2's tokenizer
(`data.tokenizer_path=FOLDER`, or the hub). Without it the text is read byte by byte, with GPT-2's vocabulary in the
model.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from assay import api
from assay.config import Home, Run
from assay.data import prepare
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import catalogue
from assay.records.status import Status
from assay.units import parse_bytes
from ladder_cells import NOT_RUN, Laboratory, Outcome, Stack, without
from ladder_report import Ladder, Row, line, write

TRIES = 3
"""Of a batch that does not fit after all, each smaller than the last."""


@dataclass(frozen=True)
class Rung:
    """One step of the climb."""

    title: str
    technique: str
    instead_of: str | None = None
    """What it takes the place of."""
    alone: str | None = None
    """How it is written where the stack below it is missing."""


FIRST = "fp32, hand-coded"

RUNGS = (
    Rung("TF32", "tf32"),
    Rung("no synchronization", "deferred_metrics"),
    Rung("mixed precision", "bf16_mixed", instead_of="tf32"),
    Rung("compile", "compile"),
    # A GPU's flash kernel takes 16 bits only.
    Rung("flash attention", "sdpa_attention:backend=flash", alone="sdpa_attention"),
    Rung("vocabulary 50,304", "vocab_padding:multiple=64"),
    Rung("tied weights", "weight_tying"),
    Rung("loader workers", "loader_workers"),
)

COMMON = (
    "model.tie_embeddings=false",
    "training.eval_interval=0",
    "training.eval_batches=1",
    "training.warmup_steps=2",
    "training.read_every=1",  # a rung reads figures later
)
GPT2 = ("gpt2-124m", "training.steps=20")
SMALL = (
    *("shakespeare-char-cpu", "model.n_layer=2", "model.n_embd=64", "model.n_head=2", "model.vocab_size=257"),
    *("data.corpus=stdlib", "data.tokenizer=byte", "training.steps=12", "threads=1"),
)
SMALL_BATCH = 8
"""Of the small shape: its memory is what the first rung holds at so many sequences, and a little more."""


def climb(lab: Laboratory, memory: int, left_out: Sequence[str], tell: Callable[[Row], None]) -> tuple[Stack, Outcome]:
    """Every rung at the old batch and at the new one → the full stack, and the first rung's cell.

    Raises `UsageError` where not even the first fits.
    """
    current = first = _verified(lab, (), lab.largest((), memory), memory, lambda one: tell(Row(FIRST, one)))
    if not first.done:
        raise UsageError(f"the first rung did not run: {first.status}, {first.reason or 'it does not fit'}")
    stack: Stack = ()
    for rung in RUNGS:
        wanted = (*without(stack, rung.instead_of), rung.technique)
        refusal = _refusal(lab, rung, wanted, current.batch, left_out)
        if refusal is not None:
            tell(Row(rung.title, Outcome(wanted, current.batch, "unavailable", refusal)))
            continue
        old = lab.measure(wanted, current.batch)
        tell(Row(rung.title, old))
        best = _refilled(lab, old, memory, partial(_tell_as, tell, rung.title))
        if best.done:
            stack, current = wanted, best
    return stack, first


def _refilled(lab: Laboratory, old: Outcome, memory: int, tell: Callable[[str, Outcome], None]) -> Outcome:
    """The same stack at the batch that fills the memory, or cut down to it; `old` where that is no other."""
    if not old.done and old.status != Status.OUT_OF_MEMORY:
        return old
    batch = lab.largest(old.stack, memory, old)
    if old.fits(memory):
        if batch <= old.batch:
            return old
        new = _verified(lab, old.stack, batch, memory, partial(tell, "batch filled"), above=old.batch)
    else:
        batch = min(batch, old.batch - lab.granularity)
        new = _verified(lab, old.stack, batch, memory, partial(tell, "batch cut"))
    return new if new.fits(memory) else old


def _tell_as(tell: Callable[[Row], None], title: str, change: str, one: Outcome) -> None:
    tell(Row(f"{title}, {change}", one))


def _verified(
    lab: Laboratory, stack: Stack, batch: int, memory: int, tell: Callable[[Outcome], None], above: int = 0
) -> Outcome:
    """Run the batch, and smaller ones where it does not fit after all, down to one that is still `above`."""
    outcome = Outcome(stack, batch, NOT_RUN, "not one sequence fits, by the ledger")
    for _ in range(TRIES):
        if batch <= above:
            break
        outcome = lab.measure(stack, batch)
        tell(outcome)
        if outcome.fits(memory) or outcome.status == NOT_RUN:
            break
        held = outcome.held_bytes if outcome.done else None
        smaller = int(batch * (memory / held if held else 0.85))
        batch = min(smaller, batch - 1) // lab.granularity * lab.granularity
    return outcome


def _refusal(lab: Laboratory, rung: Rung, stack: Stack, batch: int, left_out: Sequence[str]) -> str | None:
    name = rung.technique.partition(":")[0]
    if name not in catalogue():
        return f"this version of assay has no {name}"
    if name in left_out:
        return "left out by --without"
    try:
        lab.check(stack, batch)
    except UsageError as reason:
        return str(reason)
    return None


def credits(lab: Laboratory, stack: Stack, batch: int, left_out: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The full stack, it less each technique, the baseline again, and it with each alone, all at one batch."""
    yield "left out", Row("full stack", lab.measure(stack, batch))
    titles = {rung.technique: rung.title for rung in RUNGS}
    for one in stack:
        rest = _possible(lab, without(stack, one.partition(":")[0]), batch)
        yield "left out", Row(f"without {titles[one]}", lab.measure(rest, batch))
    # Once more: what it differs by from the first rung is what nothing at all makes.
    yield "alone", Row(FIRST, lab.measure((), batch))
    for rung in RUNGS:
        alone = (rung.alone or rung.technique,)
        refusal = _refusal(lab, rung, alone, batch, left_out)
        refused = Outcome(alone, batch, "unavailable", refusal)
        yield "alone", Row(f"{rung.title} alone", lab.measure(alone, batch) if refusal is None else refused)


def _possible(lab: Laboratory, stack: Stack, batch: int) -> Stack:
    """The stack, its techniques written as they are alone where one leant on what was left out."""
    try:
        lab.check(stack, batch)
    except UsageError:
        alone = {rung.technique: rung.alone or rung.technique for rung in RUNGS}
        return tuple(alone[one] for one in stack)
    return stack


def configuration(overrides: Sequence[str], home: Home, on_gpu: bool) -> Run:
    """GPT-2 on a GPU, with its own tokenizer if that is at hand; else the small shape."""
    source, *own = GPT2 if on_gpu else SMALL
    run = api.configure(source, [*own, *COMMON, *overrides])
    try:
        prepare(run.data, home)
    except UsageError as reason:
        print(f"{reason}; reading the text byte by byte instead", file=sys.stderr)
        run = api.configure(run, ["data.tokenizer=byte"])
    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Climb, then give credit; print the tables and write them down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="write the tables to PATH.md and PATH.json")
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--memory", type=parse_bytes, help="memory that a rung may fill")
    parser.add_argument(
        "--without", action="append", metavar="NAME", help="a technique to leave out; default on a CPU: compile"
    )
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    machine = detect()
    on_gpu = bool(machine.accelerators) and "device=cpu" not in options.overrides
    left_out = options.without if options.without is not None else ([] if on_gpu else ["compile"])
    with tempfile.TemporaryDirectory() as place:
        home = Home(place)
        run = configuration(options.overrides, home, on_gpu)
        lab = Laboratory(run, home, until, granularity=4 if on_gpu else 1)
        memory = options.memory or (
            min(parse_bytes("40GB"), int(0.95 * machine.accelerators[0].memory_bytes))
            if on_gpu
            else int(1.2 * lab.ledger((), SMALL_BATCH))
        )
        climbed: list[Row] = []
        credit: dict[str, list[Row]] = {"left out": [], "alone": []}

        def tell(row: Row, rows: list[Row]) -> None:
            rows.append(row)
            print(line(row), file=sys.stderr, flush=True)

        stack, first = climb(lab, memory, left_out, lambda row: tell(row, climbed))
        for table, row in credits(lab, stack, first.batch, left_out):
            tell(row, credit[table])
    found = Ladder(
        device=machine.accelerators[0].name if on_gpu else f"{machine.processor}, {machine.cores} cores",
        torch=version("torch"),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        configuration=lab.base.model_dump(mode="json"),
        memory_bytes=memory,
        climbed=climbed,
        left_out=credit["left out"],
        alone=credit["alone"],
    )
    write(found, options.out)


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(str(error))
