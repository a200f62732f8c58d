"""One row of a comparison: its figures, and their change against the baseline.

A time is the geometric mean over processes, each the geometric mean of its blocks' medians. The baseline's time is over
both of its runs, so that the ratio of two rows is the change printed with it. Bytes are the maximum over processes;
losses are listed by seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp
from statistics import fmean
from typing import Literal

from pydantic import Field

from assay.analysis.break_even import BreakEven, break_even
from assay.analysis.effects import Effect, Pair, exact, loss
from assay.analysis.noise import Verdict
from assay.analysis.timed import figure
from assay.config.base import Frozen
from assay.records.evidence import Evidence, ValueProof
from assay.records.prediction import Predicted
from assay.records.ranks import RankResult
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import CellResult

TIMED = ("process_peak_bytes", "step_seconds", "tokens_per_second")
EXACT = ("tensors_peak_bytes", "reserved_peak_bytes")
LOSSES = ("val_loss", "train_loss")
METRICS = (*EXACT, *TIMED, *LOSSES)
PREDICTED = ("tensors_peak_bytes", "reserved_peak_bytes", "process_peak_bytes", "step_seconds")
"""Metrics that an estimator predicts before the run."""

Figure = int | float | tuple[float, ...] | None


class Row(Frozen):
    """Results of one treatment in a comparison."""

    treatment: str
    status: Status
    """`done` if every process is done; else the status of the first process that is not."""
    reason: str | None
    runs: tuple[str, ...]
    """Ids of the runs, seed by seed."""
    planned: int
    """Number of processes that were requested."""
    finished: int
    """Number of processes that contribute to the figures."""
    metrics: Mapping[str, Figure]
    """Figures by metric, losses as one value per seed. None if it was not measured."""
    effects: Mapping[str, Effect] = Field(default_factory=dict)
    """Changes against the baseline; a metric is missing if there is nothing to compare."""
    verdicts: Mapping[str, Verdict] = Field(default_factory=dict)
    break_even: BreakEven | None = None
    """Break-even of its first step, if that takes longer than the baseline's."""
    predicted: Predicted | None
    predicted_change: Mapping[str, float] = Field(default_factory=dict)
    evidence: tuple[Evidence, ...]
    """Evidence of the first usable run; `flags` checks that the others agree."""
    values: ValueProof | None = None
    """Value check of the first run that has one."""
    proven_until: Literal["beginning", "end"] | None = None
    """Traced step up to which the evidence holds; `beginning` if a run stopped before its end."""
    ranks: tuple[RankResult, ...] = ()
    """Ranks of the first run, if there are several."""
    flags: tuple[str, ...] = ()


def usable(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells whose runs ended on their own, so that their figures can be compared."""
    return [one for one in cells if one.result.status in (Status.DONE, Status.BUDGET_REACHED)]


def metrics(
    cells: Sequence[CellResult], timed: Sequence[CellResult], kept: Mapping[int, Sequence[int]]
) -> dict[str, Figure]:
    """Return the figures of a row, with times from `timed` cells; `kept` has the rounds of each wave that count."""
    good = usable(cells)
    results = [one.result for one in good]
    logs = [figure("step_seconds", one.result, kept[one.wave]) for one in usable(timed) if one.wave in kept]
    known = [value for value in logs if value is not None]
    step = exp(fmean(known)) if known else None
    if step is None:
        medians = [result.step_seconds.median for result in results if result.step_seconds]
        step = fmean(medians) if medians else None
    tokens = results[0].config.tokens_per_step if results else 0
    return {
        "tensors_peak_bytes": _most(result.memory.tensors_peak_bytes for result in results),
        "reserved_peak_bytes": _most(result.memory.reserved_peak_bytes for result in results),
        "library_scratch_bytes": _most(result.memory.library_scratch_bytes for result in results),
        "process_peak_bytes": _most(result.memory.process_peak_bytes for result in results),
        "step_seconds": step,
        "tokens_per_second": None if step is None else tokens / step,
        "val_loss": _by_seed(good, "val_loss"),
        "train_loss": _by_seed(good, "train_loss"),
    }


def effects(baseline: Sequence[CellResult], treated: Sequence[CellResult], comparisons: int) -> dict[str, Effect]:
    """Return the change of every exact metric and loss that both have; losses as one of several comparisons.

    If a process has several baselines, the first usable one counts.
    """
    processes = {(one.cell.seed, one.cell.process): one.result for one in reversed(usable(baseline))}
    seeds: dict[int, list[tuple[RunResult, RunResult]]] = {}
    for one in usable(treated):
        if before := processes.get((one.cell.seed, one.cell.process)):
            seeds.setdefault(one.cell.seed, []).append((before, one.result))
    found = {
        **{name: exact(_memory_pairs(name, [pair for both in seeds.values() for pair in both])) for name in EXACT},
        **{name: loss([_loss_pairs(name, both) for both in seeds.values()], comparisons) for name in LOSSES},
    }
    return {name: effect for name, effect in found.items() if effect is not None}


def repaid(
    baseline: Sequence[CellResult], treated: Sequence[CellResult], kept: Mapping[int, Sequence[int]]
) -> BreakEven | None:
    """Return the cost of the first step beyond the baseline's at the same seed, and when it is earned back."""
    results = {one.cell.seed: one.result for one in reversed(usable(baseline))}
    both = [(results[one.cell.seed], one.result) for one in usable(treated) if one.cell.seed in results]
    before, after = (metrics(cells, cells, kept)["step_seconds"] for cells in (baseline, treated))
    return break_even(both, before, after) if isinstance(before, float) and isinstance(after, float) else None


_Both = Sequence[tuple[RunResult, RunResult]]


def _memory_pairs(metric: str, both: _Both) -> list[Pair]:
    pairs = [(getattr(before.memory, metric), getattr(after.memory, metric)) for before, after in both]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _loss_pairs(metric: str, both: _Both) -> list[Pair]:
    pairs = [(getattr(before, metric), getattr(after, metric)) for before, after in both]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _by_seed(cells: Sequence[CellResult], metric: str) -> tuple[float, ...]:
    """Losses by seed; the mean if the processes of a seed ended with different ones."""
    found: dict[int, list[float]] = {}
    for one in cells:
        if (value := getattr(one.result, metric)) is not None:
            found.setdefault(one.cell.seed, []).append(value)
    return tuple(values[0] if len(set(values)) == 1 else fmean(values) for values in found.values())


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
