"""Hold `assay capacity` against processes that the kernel limits: does its answer train, and does one sequence more?

    python benchmarks/capacity.py [--rows docs/measured/capacity.json] [--out docs/measured/capacity.md]

Each of twelve cells has a model, a stack and a budget. The ledger says how many sequences fit. A child that may take
the budget beyond its started size then trains three steps with so many, and with more, until memory runs out
(`benchmarks/capacity_child.py`). The largest batch that trains is the true maximum. A row is kept as soon as it is
known, and a benchmark that is started again measures the missing ones. The exit code is 1 if an answer ran out of
memory, one is below 97 % of the true maximum, or one sequence more also trained in more than two of twelve cells.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from assay.config.loading import load
from assay.estimator.capacity import largest
from assay.files import write_file
from assay.hardware import Machine, detect
from assay.units import format_bytes

ENOUGH, ALLOWED = 0.97, 2
_TRIED = 12
"""Most sequences, in steps of the setting, that are tried beyond an answer."""
_KEY = "training.batch_size"
_SECONDS = 300
MB = 10**6


class Task(NamedTuple):
    """One cell: a model as layers / heads / width / context / vocabulary, a stack, and a budget in bytes."""

    model: str
    stack: str
    budget: int

    @property
    def overrides(self) -> list[str]:
        """The model as overrides of `demo`."""
        names = ("n_layer", "n_head", "n_embd", "context_length", "vocab_size")
        shape = zip(names, self.model.split("/"), strict=True)
        return [*(f"model.{name}={value}" for name, value in shape), "device=cpu", "threads=1", f"{_KEY}=8"]

    @property
    def optimizations(self) -> list[str]:
        """The stack as a list of names; empty without optimizations."""
        return [self.stack] if self.stack else []


_SHALLOW, _MIDDLE, _DEEP = "2/4/64/384/1000", "4/4/128/256/2000", "6/6/96/256/512"
TASKS = (
    Task(_SHALLOW, "", 400 * MB),
    Task(_SHALLOW, "sdpa_attention", 320 * MB),
    Task(_SHALLOW, "bf16_mixed", 300 * MB),
    Task(_SHALLOW, "activation_checkpointing", 250 * MB),
    Task(_MIDDLE, "", 600 * MB),
    Task(_MIDDLE, "sdpa_attention+bf16_mixed+activation_checkpointing", 350 * MB),
    Task(_MIDDLE, "gradient_accumulation:micro_batches=2+lion", 420 * MB),
    Task(_MIDDLE, "bf16_full", 460 * MB),
    Task(_DEEP, "sdpa_attention+fused_adamw", 500 * MB),
    Task(_DEEP, "chunked_cross_entropy", 640 * MB),
    Task(_DEEP, "selective_checkpointing", 450 * MB),
    Task(_DEEP, "sdpa_attention+bf16_mixed+adamw_bf16_state", 360 * MB),
)


class Row(NamedTuple):
    """A cell that was measured."""

    task: Task
    answer: int
    needed: int
    """Most bytes that the ledger expects with the answer."""
    true: int
    """The largest batch that trained, in no direction bounded by the answer."""

    @property
    def fits(self) -> bool:
        """True if the answer trained within the budget."""
        return self.answer <= self.true

    @property
    def exact(self) -> bool:
        """True if one sequence more ran out of memory."""
        return self.answer == self.true

    @property
    def share(self) -> float:
        """The answer as a share of the true maximum."""
        return self.answer / max(1, self.true)


def trains(task: Task, sequences: int) -> bool:
    """Whether a limited child trains so many sequences. Raises `RuntimeError` if it fails for another reason."""
    given = {"overrides": [*task.overrides, f"{_KEY}={sequences}"], "stack": task.optimizations, "budget": task.budget}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("capacity_child.py"))],
        input=json.dumps(given),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if child.returncode:
        raise RuntimeError(f"the child of {task} with {sequences} sequences failed: {child.stderr[-400:]}")
    return bool(json.loads(child.stdout.splitlines()[-1])["ending"] == "done")


def measure(task: Task, machine: Machine) -> Row:
    """Ask the ledger, then train with its answer and with more; with less, if the answer itself runs out."""
    found = largest(load("demo", task.overrides, task.optimizations), _KEY, task.budget, machine)
    if found.value is None:
        raise RuntimeError(f"nothing fits into the budget of {task}")
    true, unit = found.value, found.unit
    if trains(task, true):
        while true < found.value + _TRIED * unit and trains(task, true + unit):
            true += unit
    else:
        true -= unit
        while true > 0 and not trains(task, true):
            true -= unit
    return Row(task, found.value, found.peak_bytes, true)


def kept(path: Path | None) -> dict[Task, Row]:
    """Rows that an earlier start has measured."""
    if path is None or not path.exists():
        return {}
    rows = (Row(Task(*one["task"]), *one["found"]) for one in json.loads(path.read_text()))
    return {row.task: row for row in rows}


def keep(path: Path, rows: Sequence[Row]) -> None:
    """Write all rows measured so far."""
    found = [{"task": list(row.task), "found": list(row[1:])} for row in rows]
    write_file(path, (json.dumps(found, indent=1) + "\n").encode())


def passes(rows: Sequence[Row]) -> bool:
    """Whether no answer ran out of memory, and enough are exact."""
    missed = sum(not row.exact for row in rows)
    return all(row.fits and row.share >= ENOUGH for row in rows) and missed <= ALLOWED


def page(rows: Sequence[Row], command: str) -> str:
    """The table, with what it means."""
    machine, over = detect(), sum(not row.fits for row in rows)
    least, exact = min(row.share for row in rows), sum(row.exact for row in rows)
    lines = [
        *("# What fits, against what trains in a limited process", "", _meaning(), ""),
        f"{machine.processor}, {machine.instruction_set}; torch {version('torch')}, Python "
        f"{platform.python_version()}: `{command}`.",
        "",
        f"{over} of {len(rows)} answers ran out of memory. One sequence more ran out in {exact} of {len(rows)}. The "
        f"least answer is {least:.1%} of the true maximum.",
        "",
        "| model | stack | budget | answer | by the ledger | true maximum | share |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.task.model} | {row.task.stack or 'baseline'} | {format_bytes(row.task.budget)} | {row.answer} "
        f"| {format_bytes(row.needed)} | {row.true} | {row.share:.1%} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _meaning() -> str:
    return (
        "Each row asks `assay capacity` for the largest batch within a budget. Models are layers / heads / width /\n"
        "context / vocabulary. A child then trains three steps with the answer, and one sequence more, and so on,\n"
        "until memory runs out. The kernel limits the child (`RLIMIT_DATA`) to its started size and the budget. The\n"
        "started size has what libraries keep: the child trains the same configuration once and frees it, before it\n"
        "is limited. malloc unmaps every freed block of 64 KiB or more, so that the limit counts what is alive."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, print, write; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, help="JSON file of measured rows, to go on with")
    parser.add_argument("--out", type=Path, help="Markdown file for the table")
    options = parser.parse_args(arguments)
    machine, found = detect(), kept(options.rows)
    for task in TASKS:
        if task not in found:
            found[task] = measure(task, machine)
        row = found[task]
        print(f"{task.model}  {task.stack or 'baseline'}  {row.answer} of {row.true}", file=sys.stderr, flush=True)
        if options.rows is not None:
            keep(options.rows, list(found.values()))
    rows = [found[task] for task in TASKS]
    text = page(rows, "python benchmarks/capacity.py")
    print(text)
    if options.out is not None:
        write_file(options.out, text.encode())
    return int(not passes(rows))


if __name__ == "__main__":
    sys.exit(main())
