"""The cost of a study beside its training: processor time of each cell, ours and torch's apart, and the page.

    python benchmarks/study_cost.py [--cells 200] [--runs 1000]

A study of cells that train a tiny model for two steps runs without times. Processor time is counted, because other
work on the machine hardly changes it. A cell costs that of its own process, and its share of the coordinator's: plans,
predictions, prepared data, logs and the record. A study of three cells before it prepares the data and measures the
machine.

Two bare processes tell torch's part from ours. The first starts Python and imports torch. The second also makes one
step of AdamW on a tiny module, with deterministic kernels as in a cell: torch then imports its compiler, though nothing
is compiled. Both import without collecting garbage and end without teardown, as cells do, so that neither saving hides
work of ours. They run in turn beside the cells for as long as the study does: a busy core is a slower one.

Phases are mean seconds of a cell's own process by a clock; `import` has the start of Python and torch. The page is then
written for a record in which these cells are repeated at other seeds, until it has as many runs as asked.
"""

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

from assay import api
from assay.analysis.comparison import analyse
from assay.config import Home
from assay.records.study import CellResult, ComparisonRecord
from assay.report.page import write_page

_STUDY = """
kind: factorial
base: demo
overrides: [data.path={text}, model.n_layer=1, model.n_head=1, model.n_embd=8, model.context_length=8,
  training.batch_size=2, training.steps=2, training.check_values=false]
seeds: 1
processes: 1
vary:
  training.learning_rate: [{rates}]
"""

IMPORT = "import gc, os; gc.disable(); import torch"
STEP = """
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(layer.parameters(), foreach=False, fused=False)
layer(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""
END = "\nos._exit(0)"
"""A cell leaves out the interpreter's teardown, too (`assay.worker.processes.exit`)."""


class Costs(NamedTuple):
    """Seconds of processor time for each cell."""

    coordinator: float
    child: float
    """The cell's own process."""
    importing: float
    """A bare process that imports torch."""
    stepping: float
    """A bare process that also makes one step."""

    @property
    def beyond_import(self) -> float:
        """Cost of a cell beyond the start of Python and the import of torch."""
        return self.coordinator + self.child - self.importing

    @property
    def ours(self) -> float:
        """Cost of a cell beyond all that torch needs for one step."""
        return self.coordinator + self.child - self.stepping


def studied(place: Path, cells: int) -> tuple[ComparisonRecord, Costs]:
    """Run a study of so many cells → its record, and what each cell cost."""
    text = place / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 200)
    _run(place, 3)
    bare = Bare()
    coordinator, children = time.process_time(), _children()
    with bare:
        record = _run(place, cells)
    coordinator = time.process_time() - coordinator - bare.own
    children = _children() - children - sum(map(sum, bare.spent.values()))
    count = len(record.cells)
    return record, Costs(coordinator / count, children / count, *map(median, bare.spent.values()))


class Bare:
    """Context in which the bare programs run in turn, in another thread."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {IMPORT + END: [], IMPORT + STEP + END: []}
        """Seconds of processor time of each process, by program."""
        self.own = 0.0
        """Seconds of the thread."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.is_set():
            for code, spent in self.spent.items():
                process = os.posix_spawn(
                    sys.executable, [sys.executable, "-P", "-c", code], {**os.environ, "PYTHONHASHSEED": "0"}
                )
                _, status, used = os.wait4(process, 0)
                if status:
                    raise RuntimeError(f"a bare process failed: {code}")
                spent.append(used.ru_utime + used.ru_stime)
        self.own = time.thread_time()


def _run(place: Path, cells: int) -> ComparisonRecord:
    study = place / f"tiny-{cells}.yaml"
    rates = ", ".join(f"{1e-3 * (1 + number / cells):.6g}" for number in range(cells - 1))  # the control runs twice
    study.write_text(_STUDY.format(text=place / "text.txt", rates=rates))
    return api.study.run(study, "training.min_learning_rate=0", loss_only=True, home=place / "home").record


def _children() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def repeated(record: ComparisonRecord, runs: int) -> ComparisonRecord:
    """Return a record with at least so many runs: those of the given one, at more seeds."""
    count = -(-runs // len(record.cells))
    cells = [_at(one, seed) for seed in range(count) for one in record.cells]
    return record.model_copy(update={"cells": tuple(cells), "seeds": tuple(range(count))})


def _at(one: CellResult, seed: int) -> CellResult:
    run = one.cell.run.model_copy(update={"seed": seed})
    result = one.result.model_copy(update={"run": f"{one.result.run}-{seed}", "config": run})
    return one.model_copy(update={"cell": one.cell.model_copy(update={"seed": seed, "run": run}), "result": result})


def show(costs: Costs, cells: int) -> None:
    """Print the costs of a cell."""
    print(f"{cells} cells, seconds of processor time for each:")
    print(f"  coordinator                       {costs.coordinator:.3f}")
    print(f"  the cell's process                {costs.child:.3f}")
    print(f"  bare: Python and torch            {costs.importing:.3f}   a cell beyond it {costs.beyond_import:.3f}")
    print(f"  bare: and one step of AdamW       {costs.stepping:.3f}   a cell beyond it {costs.ours:.3f}")


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description="Measure what a study costs beside its training.")
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000, help="runs of the study whose page is written")
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode, as torch has
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        record, costs = studied(place, chosen.cells)
        count = len(record.cells)
        show(costs, count)
        phases: Counter[str] = Counter()
        for one in record.cells:
            phases.update(one.result.phase_seconds)
        print("a cell: " + ", ".join(f"{name} {spent / count:.2f} s" for name, spent in phases.most_common()))
        large = repeated(record, chosen.runs)
        began = time.perf_counter()
        page = write_page(analyse(large), Home(place / "home"), place / "page.html")
        size = page.stat().st_size / 2**20
        print(f"page of {len(large.cells)} runs: {time.perf_counter() - began:.1f} s with its analysis, {size:.1f} MiB")


if __name__ == "__main__":
    main()
