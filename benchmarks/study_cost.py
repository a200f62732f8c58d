"""The cost of a study beside its training: seconds of the coordinator for each cell, phases of a cell, and the page.

    python benchmarks/study_cost.py [--cells 200] [--runs 1000]

A study of cells that train a tiny model for two steps runs without times. The coordinator's processor time, divided by
the number of cells, is what the study adds to them: plans, predictions, prepared data, logs and the record. Phases are
mean seconds of a cell's own process; `import` has the start of Python and torch. The page is then written for a record
in which these cells are repeated at other seeds, until it has as many runs as asked.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

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


def studied(place: Path, cells: int) -> tuple[ComparisonRecord, float]:
    """Run a study of so many cells → its record, and the processor time of this process."""
    text, study = place / "text.txt", place / "tiny.yaml"
    text.write_text("To be, or not to be, that is the question.\n" * 200)
    rates = ", ".join(f"{1e-3 * (1 + number / cells):.6g}" for number in range(cells - 1))  # the control runs twice
    study.write_text(_STUDY.format(text=text, rates=rates))
    before = time.process_time()
    found = api.study.run(study, "training.min_learning_rate=0", loss_only=True, home=place / "home")
    return found.record, time.process_time() - before


def repeated(record: ComparisonRecord, runs: int) -> ComparisonRecord:
    """Return a record with at least so many runs: those of the given one, at more seeds."""
    count = -(-runs // len(record.cells))
    cells = [_at(one, seed) for seed in range(count) for one in record.cells]
    return record.model_copy(update={"cells": tuple(cells), "seeds": tuple(range(count))})


def _at(one: CellResult, seed: int) -> CellResult:
    run = one.cell.run.model_copy(update={"seed": seed})
    result = one.result.model_copy(update={"run": f"{one.result.run}-{seed}", "config": run})
    return one.model_copy(update={"cell": one.cell.model_copy(update={"seed": seed, "run": run}), "result": result})


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description="Measure what a study costs beside its training.")
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000, help="runs of the study whose page is written")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        record, seconds = studied(place, chosen.cells)
        count = len(record.cells)
        print(f"coordinator: {seconds:.1f} s of processor time for {count} cells, {seconds / count:.3f} s for each")
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
