"""Peaks that the ledger predicts for an H200, beside those of a real one, of traces, and of an absent GPU.

    python benchmarks/ledger_peaks.py [--only WORD] [--draws N] [--first N] [--python PYTHON] [--absent N]
                                      [--compiled N] [--out PAGE.md]

The rows of a real H200 take a second. N drawn runs (`ledger_draws.py`) are traced on fake tensors (`trace_steps.py`), a
second each. The first of them also run on an absent GPU, with the Python of a CUDA build (`absent_peaks.py`), in some
seconds each. So do N compiled runs, half a minute each. The page is `docs/measured/ledger_peaks.md`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from absent_peaks import MEASURED, answered, taken, title
from assay.api import configure
from assay.config import Run
from assay.cost.mixture import between_steps
from assay.estimator import Estimate, estimate
from ledger_draws import MACHINE, drawn, drawn_mixture, drawn_with

HERE = Path(__file__).parent
NAMED_BYTES = 192
"""Largest difference of a drawn run that is named."""
NORM_BYTES = 8
"""Bytes of the norms of two blocks' outputs, which training reports, and the steps that are compared do not."""
COMPILED_SHARE, MEASURED_SHARE = 0.01, 0.0002
"""Largest errors of compiled code, and of everything else that was measured."""
HEAD = """# Peaks that the ledger predicts, against those of a GPU

The ledger predicts the requested peak of a step on an H200 in milliseconds, without torch: tensors, workspaces of
cuBLAS, and what kernels take inside. It is held against three others. A real H200 took 53 steps (torch 2.11.0+cu130).
A trace follows the step on fake tensors ([traced peaks](trace_peaks.md)). On an absent GPU torch's CUDA build runs it
([absent peaks](absent_peaks.md)).

Differences that are named, of at most 192 bytes:

- A training reports the norms of two blocks' outputs, 4 bytes each for every micro-batch. The steps that were measured
  and traced report none.
- `deferred_metrics` keeps 144 bytes of figures that are not yet read, which a single step has not.
- A captured graph keeps its loss.

A training of a mixture also keeps statistics of each layer's routing, 8 bytes for each expert and 16 more. Mixtures are
drawn so that their step hangs on no routing: their products are grouped, as in bfloat16, or their experts have a
capacity.

Before 2.12 torch composes RMS norms of 16-bit inputs of several kernels under autocast. So each run on an absent GPU is
predicted for the torch that it has there.
"""


class Row(NamedTuple):
    """One step with its predicted peak and another one."""

    name: str
    predicted: int
    found: int | None
    bound: float
    """Largest error, in bytes."""
    reason: str = ""
    """Why there is no other peak, or no bound."""

    @property
    def error(self) -> int:
        """Predicted less found, in bytes."""
        return self.predicted - (self.found or 0)

    @property
    def within(self) -> bool:
        """Whether the error is small enough, or nothing was found."""
        return self.found is None or abs(self.error) <= self.bound


def requested(found: Estimate) -> int:
    """Highest sum of tensors and workspaces."""
    return found.timeline.requested.nbytes


def measured_rows(only: str = "") -> list[Row]:
    """Steps of assay on a real H200."""
    rows = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    return [_measured(row) for row in rows if "preset" in row and only in title(row)]


def _measured(row: Mapping[str, Any]) -> Row:
    stack = [row["stack"]] if row["stack"] else []
    run = configure(row["preset"], [*row["over"], "device=cuda", "training.read_every=1"], *stack)
    found, peak = estimate(run, MACHINE), row["requested_peak"]
    if found.cost.copied_beside:
        least, most = found.requested_bytes.low, found.requested_bytes.high
        reason = f"at least {least:,}, at most {most:,}: copies to the host end at once, or with the step"
        return Row(title(dict(row)), min(max(least, peak), most), peak, 0.0, reason)
    share = COMPILED_SHARE if "compile" in title(dict(row)) else MEASURED_SHARE
    return Row(title(dict(row)), requested(found), peak, share * peak)


def compiled_rows(runs: Mapping[int, Run], answers: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Compiled runs by their numbers, beside what an absent GPU gave. A peak between both bounds has no error."""
    rows = []
    for (number, run), answer in zip(runs.items(), answers, strict=True):
        peak, bounds = answer.get("requested_peak"), estimate(run, MACHINE).requested_bytes
        near = min(max(bounds.low, peak or 0), bounds.high)
        rows.append(Row(name_of(number, run), near, peak, NAMED_BYTES, "" if peak else told({}, answer)))
    return rows


def drawn_rows(runs: Mapping[int, Run], answers: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Runs by their numbers, beside what a trace or an absent GPU gave."""
    rows = []
    for (number, run), answer in zip(runs.items(), answers, strict=True):
        peak = answer.get("requested_peak")
        reason = "" if peak else " ".join(map(str, answer.values()))
        bound = NAMED_BYTES + _routing_bytes(run)
        rows.append(Row(name_of(number, run), requested(estimate(run, MACHINE)), peak, bound, reason))
    return rows


def _routing_bytes(run: Run) -> int:
    """Bytes of the figures on routing that a training reports, and the steps that are compared do not."""
    return sum(one.nbytes for one in between_steps(run.model) if one.name == "routing statistics")


def absent_rows(runs: Mapping[int, Run], python: str) -> list[Row]:
    """Runs by their numbers, beside what an absent GPU gives, and predicted for its torch."""
    rows = [row | dict.fromkeys(PEAKS, 0) for row in as_rows(runs)]
    answers = taken(rows, python, [])
    asked = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    with patch.object(import_module("assay.estimator.estimate"), "torch_version", lambda: version):
        return drawn_rows(runs, answers)


def name_of(number: int, run: Run) -> str:
    """Number, shape and stack of a drawn run."""
    one = run.model
    shape = (
        f"{one.n_layer} × {one.n_embd} × {one.context_length}, {one.vocabulary} tokens, batch {run.training.batch_size}"
    )
    return f"{number}: {shape}: {'+'.join(map(str, run.optimizations)) or 'baseline'}"


def as_rows(runs: Mapping[int, Run]) -> list[dict[str, Any]]:
    """Drawn runs as rows of a program that takes steps."""
    return [{"run": run.model_dump(mode="json"), "stack": name_of(number, run)} for number, run in runs.items()]


def traced(runs: Mapping[int, Run]) -> list[dict[str, Any]]:
    """Peaks of drawn runs on fake tensors."""
    variables = dict(os.environ) | {"PYTHONPATH": str(HERE.parent / "src")}
    return answered(as_rows(runs), [sys.executable, str(HERE / "trace_steps.py")], [], variables, told)


def told(row: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """What a row gave, in words."""
    return " ".join(f"{key}: {value}" for key, value in answer.items())


def is_apart(row: Row) -> bool:
    """True for compiled code and copies beside, which have bounds of their own."""
    return "compile" in row.name or "offload" in row.name


def table(rows: Sequence[Row]) -> list[str]:
    """Rows as lines of a table."""
    lines = ["| step | found, bytes | ledger less found, bytes | |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        if row.found is None:
            lines.append(f"| {row.name} | | {row.reason} | |")
        else:
            lines.append(
                f"| {row.name} | {row.found:,} | {row.reason or f'{row.error:+,}'} | {row.error / row.found:+.4%} |"
            )
    return lines


def counted(name: str, rows: Sequence[Row]) -> str:
    """One line about a group."""
    known = [row for row in rows if row.found]
    worst = max((abs(row.error) / (row.found or 1) for row in known), default=0.0)
    within = sum(row.within for row in known)
    return f"| {name} | {len(known)} | {within} | {max((abs(row.error) for row in known), default=0):,} | {worst:.4%} |"


def page(groups: Mapping[str, Sequence[Row]]) -> str:
    """The page: a line for each group, the measured rows, and those that are beyond their bounds."""
    lines = [HEAD, f"{datetime.now(UTC):%Y-%m-%d}:\n"]
    lines += ["| against | steps | within bounds | largest error, bytes | largest share |", "| --- " * 5 + "|"]
    lines += [counted(name, rows) for name, rows in groups.items() if rows]
    beyond = [row for rows in groups.values() for row in rows if not row.within]
    if beyond:
        lines += ["", "Beyond their bounds:", "", *table(beyond)]
    measured = [row for name, rows in groups.items() if name.startswith("a real") for row in rows]
    lines += ["", "Steps that a real H200 took:", "", *table(measured)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, write. Return 1 where an error is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--mixtures", type=int, default=0)
    parser.add_argument("--absent", type=int, default=0)
    parser.add_argument("--compiled", type=int, default=0)
    parser.add_argument("--python")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    measured = measured_rows(given.only)
    groups = {
        "a real H200": [row for row in measured if not is_apart(row)],
        "a real H200: compiled code and offloading": [row for row in measured if is_apart(row)],
    }
    for kind, draw, count in (("runs", drawn, given.draws), ("mixtures", drawn_mixture, given.mixtures)):
        runs = {number: draw(number) for number in range(given.first, given.first + count)}
        if runs:
            groups[f"traces of drawn {kind}"] = drawn_rows(runs, traced(runs))
        if there := dict(list(runs.items())[: given.absent]):
            groups[f"drawn {kind} on an absent H200"] = absent_rows(there, given.python)
    compiled = {at: drawn_with("compile", at) for at in range(given.first, given.first + given.compiled)}
    if compiled:
        rows = [row | dict.fromkeys(PEAKS, 0) for row in as_rows(compiled)]
        groups["compiled runs on an absent H200: beyond their bounds"] = compiled_rows(
            compiled, taken(rows, given.python, [])
        )
    text = page(groups)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    return int(not all(row.within for rows in groups.values() for row in rows))


PEAKS = ("requested_peak", "allocated_peak", "reserved_peak")

if __name__ == "__main__":
    sys.exit(main())
