"""The cost of a study beside its training: processor time of each cell, ours and torch's apart, and the page.

    python benchmarks/study_cost.py [--cells 200] [--without-server 30] [--runs 1000]

A study of cells that train a tiny model for two steps runs without times. Processor time is counted, because other
work on the machine hardly changes it. A cell costs that of its own process, and its share of the coordinator's: plans,
predictions, prepared data, logs and the record. A study of three cells before it prepares the data and measures the
machine.

The cells of such a study are forked from a server that has imported torch; what the server takes is divided among
them. A cell that is timed, or that uses an accelerator, starts a process of its own. A study of fewer cells without a
server shows what such a cell costs.

Bare processes tell torch's part from ours. The first starts Python and imports torch. The second also makes one
step of AdamW on a tiny module, with deterministic kernels as in a cell: torch then imports its compiler, though nothing
is compiled. Both import without collecting garbage and end without teardown, as cells do, so that neither saving hides
work of ours. A third one imports torch and its compiler, and forks a process that makes the same step; only the forked
process counts. So it is what a forked cell would be without us. The three run in turn beside the cells for as long as
each study does, because a busy core is a slower one. Ours is what a cell costs beyond the bare process of its kind.

Phases are mean seconds of a cell's own process by a clock; `import` is the time until its work begins. The page is then
written for a record in which these cells are repeated at other seeds, until it has as many runs as asked.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from assay import api
from assay.analysis.comparison import analyse
from assay.config import Home
from assay.launch import spawn
from assay.records.study import CellResult, ComparisonRecord
from assay.report.kit.view import write_page

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
FORKED = f"""
import gc, os; gc.disable(); import torch, torch._dynamo
child = os.fork()
if child == 0:
    exec({STEP!r})
    os._exit(0)
_, status, used = os.wait4(child, 0)
os.write(1, str(used.ru_utime + used.ru_stime).encode())
os._exit(status != 0)
"""
END = "\nos._exit(0)"
"""A cell leaves out the interpreter's teardown, too (`assay.worker.processes.ends`)."""


class Costs(NamedTuple):
    """Seconds of processor time for each cell."""

    coordinator: float
    process: float
    """The cell's own process, with its share of the server."""
    importing: float
    """A bare process that imports torch."""
    stepping: float
    """A bare process that also makes one step."""
    forking: float
    """A bare process that makes one step after a fork."""

    @property
    def whole(self) -> float:
        """All that a cell costs."""
        return self.coordinator + self.process


def prepared(place: Path) -> None:
    """Prepare the data and the machine's rates in a home, by a study of three cells."""
    (place / "text.txt").write_text("To be, or not to be, that is the question.\n" * 200)
    _run(place, 3)


def studied(place: Path, cells: int) -> tuple[ComparisonRecord, Costs]:
    """Run a study of so many cells → its record, and what each cell cost."""
    bare = Bare()
    coordinator, processes = time.process_time(), _processes()
    with bare:
        record = _run(place, cells)
    coordinator = time.process_time() - coordinator - bare.own
    processes = _processes() - processes - bare.started
    count = len(record.cells)
    return record, Costs(coordinator / count, processes / count, *map(median, bare.spent.values()))


@contextmanager
def no_server() -> Iterator[None]:
    """Let each cell start a process of its own inside the block, as where there is no server."""
    kept = spawn.FORK_SERVER
    spawn.FORK_SERVER = (sys.executable, "-S", "-c", "")
    try:
        yield
    finally:
        spawn.FORK_SERVER = kept


class Bare:
    """Context in which the bare programs run in turn, in another thread."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {IMPORT + END: [], IMPORT + STEP + END: [], FORKED: []}
        """Seconds of processor time of each process, by program."""
        self.own = 0.0
        """Seconds of the thread."""
        self.started = 0.0
        """Seconds of processor time of all processes that it started."""
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
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code],
                    env={**os.environ, "PYTHONHASHSEED": "0"},
                    stdout=subprocess.PIPE,
                )
                assert process.stdout is not None
                with process.stdout as said:
                    of_fork = said.read()
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = status
                if status:
                    raise RuntimeError(f"a bare process failed: {code}")
                self.started += used.ru_utime + used.ru_stime
                spent.append(float(of_fork) if of_fork else used.ru_utime + used.ru_stime)
        self.own = time.thread_time()


def _run(place: Path, cells: int) -> ComparisonRecord:
    study = place / f"tiny-{cells}.yaml"
    rates = ", ".join(f"{1e-3 * (1 + number / cells):.6g}" for number in range(cells - 1))  # the control runs twice
    study.write_text(_STUDY.format(text=place / "text.txt", rates=rates))
    return api.study.run(study, "training.min_learning_rate=0", loss_only=True, home=place / "home").record


def _processes() -> float:
    """Return the processor time of all processes that this one started, or their children, and that have ended."""
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


def show(forked: Costs, cells: int, started: Costs, fewer: int) -> None:
    """Print the costs of a cell of a study without times, and of one that starts a process of its own."""
    print(f"{cells} cells, seconds of processor time for each:")
    print(f"  coordinator                       {forked.coordinator:.3f}")
    print(f"  the cell's process                {forked.process:.3f}   with its share of the server")
    beyond = forked.whole - forked.forking
    print(f"  a cell, all in all                {forked.whole:.3f}")
    print(f"  bare: one step of AdamW, forked   {forked.forking:.3f}   a cell beyond it {beyond:.3f}")
    print(f"  bare: Python and torch            {forked.importing:.3f}   not in a cell: the server imports once")
    print(f"{fewer} cells without a server:")
    print(f"  a cell, all in all                {started.whole:.3f}")
    for name, bare in (("Python and torch", started.importing), ("and one step of AdamW", started.stepping)):
        print(f"  {f'bare: {name}':<32}  {bare:.3f}   a cell beyond it {started.whole - bare:.3f}")


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description="Measure what a study costs beside its training.")
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--without-server", type=int, default=30, help="cells of the study without a server")
    parser.add_argument("--runs", type=int, default=1000, help="runs of the study whose page is written")
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode, as torch has
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        prepared(place)
        record, forked = studied(place, chosen.cells)
        with no_server():
            fewer, started = studied(place, chosen.without_server)
        count = len(record.cells)
        show(forked, count, started, len(fewer.cells))
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
