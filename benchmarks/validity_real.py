"""Real processes of one configuration, compared with themselves: every difference that is found is noise.

A *pair* is two processes that take turns: how far apart they are is the deviation between processes. A *comparison* is
the default one (three seeds, five blocks), with treatments that are the baseline again. Both go through the package's
own protocol and analysis. The configuration is the demo's without what takes time and is not timed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import log
from typing import Any

from assay import api
from assay.analysis.catalogue import device_of
from assay.analysis.comparison import analyse
from assay.analysis.effects import figure, rounds
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.config import Home
from assay.data.progress import silent
from assay.optimizations import resolve_run
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, Cell, CellResult, ComparisonRecord
from assay.studies.execution.run import Execution, measure_design

CONFIGURATION = ("training.measure_memory=false", "training.eval_batches=1")
SEEDS = 3
BLOCKS = 5
TREATMENTS = ("the baseline, a third time", "the baseline, a fourth time")
Row = dict[str, Any]


def pair(home: Home) -> Row:
    """Two processes of one seed: their log ratio, and the logarithms of their blocks."""
    record = _measure((BASELINE, AGAIN), 1, home)
    kept = rounds(record.cells, record.rounds)
    before, after = (record.of(name)[0] for name in (BASELINE, AGAIN))
    logs = [figure(STEP_SECONDS, one.result, kept[one.wave]) for one in (before, after)]
    if None in logs:
        raise RuntimeError("a process of the pair has no timed block")
    first, second = (value for value in logs if value is not None)
    return _when(record) | {"log_ratio": second - first, "blocks": [_blocks(before, kept), _blocks(after, kept)]}


def comparison(home: Home) -> Row:
    """One comparison of the baseline with itself: what it says of the step time of each row."""
    found = analyse(_measure((BASELINE, AGAIN, *TREATMENTS), SEEDS, home))
    step = found.resolution["step_seconds"]
    return _when(found.record) | {
        "changes": [row.effects["step_seconds"].change for row in found.rows],
        "intervals": [row.effects["step_seconds"].interval for row in found.rows],
        "verdicts": [row.verdicts["step_seconds"].value for row in found.rows],
        "memory_verdicts": [row.verdicts["process_peak_bytes"].value for row in found.rows],
        "told": step.told,
        "deviation": step.deviation,
        "degrees": step.degrees,
    }


def _measure(names: Sequence[str], seeds: int, home: Home) -> ComparisonRecord:
    base = resolve_run(api.configure("demo", CONFIGURATION))
    cells = [
        Cell(treatment=name, replicate=int(name == AGAIN), seed=seed, run=base.model_copy(update={"seed": seed}))
        for seed in range(seeds)
        for name in names
    ]
    record = measure_design(cells, base, Execution(home, BLOCKS, 300, "demo", silent, lambda news: None))
    if failed := [one.result for one in record.cells if one.result.status is not Status.DONE]:
        raise RuntimeError(f"a process did not finish: {failed[0].status.value}, {failed[0].reason}")
    return record


def _blocks(one: CellResult, kept: dict[int, list[int]]) -> list[float]:
    return [log(one.result.blocks[at].median_step_seconds) for at in kept[one.wave]]


def _when(record: ComparisonRecord) -> Row:
    """Time, machine, and how many rounds others disturbed."""
    environment = next((one.result.environment for one in record.cells if one.result.environment), None)
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_of(environment) if environment else "",
        "torch": environment.torch if environment else "",
        "rounds": len(record.rounds),
        "disturbed": sum(bool(one.disturbed) for one in record.rounds),
    }
