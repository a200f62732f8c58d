"""One row of a comparison: its figures, their change against the baseline, and both as plain values.

A compiler does its work in the first step, which is therefore not among the timed ones. Its price is the excess of that
step over a steady one, less the same excess of the baseline. The most expensive of several seeds counts, because later
ones may find compiled code on the disk. Steps earn it back where a step is surely faster: its interval leaves out zero.

A timed figure is the geometric mean over processes, each the geometric mean of its blocks. The baseline's is over both
of its runs, so that the ratio of two rows is the change printed with it. Bytes and other exact figures are the maximum
over processes; losses are listed by seed.

A limit binds each row: memory, data, communication or compute, as far as its record tells. Shares are compared with
fixed bounds, in this order. Memory: a run that went out of memory, or a process's peak near the memory that was free
before the study. Data: the share of a step in which the host waited for its batch. Communication: the share of a step
with a collective running. Compute: the time of the step's work over the measured step time. The former divides the work
by the rates that were measured on the machine. So a share near 1 means that no other cost is large. If no share reaches
its bound, the limit is not known.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import exp, nan
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from assay.analysis.effects import Effect, Pair, Verdict, exact, figure, loss
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.standard import PROCESS_PEAK_BYTES, STEP_SECONDS, TOKENS_PER_SECOND
from assay.config.base import Frozen
from assay.records.evidence import Evidence, ValueProof
from assay.records.prediction import Predicted, highest
from assay.records.ranks import RankResult
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import CellResult
from assay.records.timing import Outside

if TYPE_CHECKING:
    from assay.analysis.comparison import Comparison


_TELLING_STEPS = 10
"""Number of baseline steps. A first step that costs less time than they take is not reported."""


class BreakEven(Frozen):
    """Price of a first step, and the number of steps that earn it back."""

    price_seconds: float
    saved_seconds: float | None
    """Seconds that a steady step surely saves; None if a saving cannot be told, or if steps are slower."""
    steps: int | None
    """Number of steps after which the run is ahead of the baseline; None without a saving."""
    interval: tuple[int, int] | None
    """Numbers of steps by both ends of the interval of a step's change."""
    run_steps: int
    """Steps that each run of the row trains."""


def break_even(both: Sequence[tuple[RunResult, RunResult]], before: float, change: Effect | None) -> BreakEven | None:
    """Return the break-even of (baseline, treated) runs; None if no first step costs enough to be reported.

    `before` is the steady seconds of the baseline's step, and `change` that of the treatment's against it.
    """
    ahead = [(_ahead(baseline), _ahead(treated)) for baseline, treated in both]
    price = max((own - usual for usual, own in ahead if own is not None and usual is not None), default=0.0)
    if price < _TELLING_STEPS * before:
        return None
    saved = change is not None and change.interval is not None and change.interval[1] < 0
    shares = (-change.change, *(-one for one in change.interval)) if change and change.interval and saved else ()
    steps = [math.ceil(price / (share * before)) for share in shares]
    return BreakEven(
        price_seconds=price,
        saved_seconds=shares[0] * before if shares else None,
        steps=steps[0] if steps else None,
        interval=(steps[1], steps[2]) if steps else None,
        run_steps=both[0][1].config.training.steps,
    )


def _ahead(result: RunResult) -> float | None:
    """Seconds of the first step beyond those of a steady one; None if either was not measured."""
    if result.speed.first_step_seconds is None or result.speed.step_seconds is None:
        return None
    return result.speed.first_step_seconds - result.speed.step_seconds.median


Figure = int | float | tuple[float, ...] | None


class Row(Frozen):
    """Results of one treatment in a comparison."""

    treatment: str
    label: str
    """Short name for a reader, such as ``context × 2 · SGD``; `treatment` names the row in the record."""
    status: Status
    """`done` if every process is done; else the status of the first that is not, or why some did not run.

    It is `budget_reached` if a limit of time ended the study after some processes of the row.
    """
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
    host_share: float | None = None
    """Share of its steps' time in which the host queued them, over all runs; None on a CPU and in older records."""
    predicted: Predicted | None
    predicted_change: Mapping[str, float] = Field(default_factory=dict)
    evidence: tuple[Evidence, ...]
    """Evidence of the first usable run; `flags` checks that the others agree."""
    values: ValueProof | None = None
    """Value check of the first run that has one, or of the first in which something was not right."""
    proven_until: Literal["beginning", "end"] | None = None
    """Traced step up to which the evidence holds; `beginning` if a run stopped before its end."""
    ranks: tuple[RankResult, ...] = ()
    """Ranks of the first run, if there are several."""
    outside: Outside | None = None
    """Work of its busiest process while other cells were timed; None if it was not read."""
    flags: tuple[str, ...] = ()


def usable(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells whose runs ended on their own, so that their figures can be compared."""
    return [one for one in cells if one.result.status.finished]


def seeds_of(cells: Iterable[CellResult]) -> frozenset[int]:
    """Return the seeds at which runs of these cells ended on their own."""
    return frozenset(one.cell.seed for one in usable(cells))


def figures(
    cells: Sequence[CellResult], timed: Sequence[CellResult], kept: Mapping[int, Sequence[int]]
) -> dict[str, Figure]:
    """Return the figures of a row, with times from `timed` cells; `kept` has the rounds of each wave that count."""
    good, every = usable(cells), metrics().values()
    scratch = highest(one.result.memory.library_scratch_bytes for one in good)
    return {
        **{metric.name: _figure(metric, good, timed, kept) for metric in every if metric.kind == "exact"},
        "library_scratch_bytes": scratch,
        **{metric.name: _figure(metric, good, timed, kept) for metric in every if metric.kind != "exact"},
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
    found: dict[str, Effect | None] = {}
    for name, metric in metrics().items():
        if metric.kind == "exact":
            found[name] = exact(_pairs(metric, [pair for both in seeds.values() for pair in both]))
        elif metric.kind == "loss":
            found[name] = loss([_pairs(metric, both) for both in seeds.values()], comparisons)
    return {name: effect for name, effect in found.items() if effect is not None}


def repaid(
    baseline: Sequence[CellResult],
    treated: Sequence[CellResult],
    kept: Mapping[int, Sequence[int]],
    change: Effect | None,
) -> BreakEven | None:
    """Return the cost of the first step beyond the baseline's at the same seed, and when it is earned back."""
    results = {one.cell.seed: one.result for one in reversed(usable(baseline))}
    both = [(results[one.cell.seed], one.result) for one in usable(treated) if one.cell.seed in results]
    before = _mean(STEP_SECONDS, usable(baseline), baseline, kept)
    return None if before is None else break_even(both, before, change)


def _figure(
    metric: Metric, good: Sequence[CellResult], timed: Sequence[CellResult], kept: Mapping[int, Sequence[int]]
) -> Figure:
    """Figure of one metric over the usable cells of a row."""
    if metric.kind == "loss":
        return _by_seed(metric, good)
    if metric.kind == "exact" or (metric.unit == "bytes" and metric.of):
        return highest(metric.of_run(one.result) for one in good)
    if metric.per_step is None:
        return _mean(metric, good, timed, kept)
    step = _mean(STEP_SECONDS, good, timed, kept)
    amount = metric.per_step(good[0].result.config) if good else 0
    if metric.name == TOKENS_PER_SECOND.name:
        amount = _counted(good) or amount
    return None if step is None else amount / step


def _counted(cells: Sequence[CellResult]) -> float | None:
    """Return the mean number of targets of a timed step that a user's own loss counted; None for any other loss."""
    own = [one.result for one in cells if one.result.config.own_rows is not None]
    blocks = [block for result in own for block in result.speed.blocks]
    steps = sum(block.steps for block in blocks)
    return sum(block.tokens for block in blocks) / steps if steps else None


def _mean(
    metric: Metric, good: Sequence[CellResult], timed: Sequence[CellResult], kept: Mapping[int, Sequence[int]]
) -> float | None:
    """Geometric mean over the timed cells; without blocks, the mean over the figures of the runs."""
    logs = [figure(metric, one.result, kept[one.wave]) for one in usable(timed) if one.wave in kept]
    if known := [value for value in logs if value is not None]:
        return exp(fmean(known))
    whole = [value for one in good if (value := metric.of_run(one.result)) is not None]
    return fmean(whole) if whole else None


def _pairs(metric: Metric, both: Sequence[tuple[RunResult, RunResult]]) -> list[Pair]:
    pairs = [(metric.of_run(before), metric.of_run(after)) for before, after in both]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _by_seed(metric: Metric, cells: Sequence[CellResult]) -> tuple[float, ...]:
    """Losses by seed; the mean if the processes of a seed ended with different ones."""
    found: dict[int, list[float]] = {}
    for one in cells:
        if (value := metric.of_run(one.result)) is not None:
            found.setdefault(one.cell.seed, []).append(value)
    return tuple(values[0] if len(set(values)) == 1 else fmean(values) for values in found.values())


def row_json(row: Row) -> dict[str, Any]:
    """Return a row as plain values; `change` and `interval` are fractions.

    `predicted` has the fields of the run's prediction, and under `change` their changes.
    """
    predicted = row.predicted.model_dump(mode="json") if row.predicted else {}
    names = list(metrics())
    return {
        "treatment": row.treatment,
        "label": row.label,
        "status": row.status.value,
        "reason": row.reason,
        "runs": list(row.runs),
        "finished": row.finished,
        "metrics": {name: list(value) if isinstance(value, tuple) else value for name, value in row.metrics.items()},
        "change": {name: row.effects[name].change if name in row.effects else None for name in names},
        "interval": {
            name: list(effect.interval) if (effect := row.effects.get(name)) and effect.interval else None
            for name in names
        },
        "predicted": {**predicted, "change": dict(row.predicted_change)},
        "break_even": row.break_even.model_dump(mode="json") if row.break_even else None,
        "host_share": row.host_share,
        "evidence": [item.model_dump(mode="json") for item in row.evidence],
        "values": row.values.model_dump(mode="json") if row.values else None,
        "ranks": [{**one.model_dump(mode="json"), "communication_share": one.communication_share} for one in row.ranks],
        "distinguishable": {name: _distinguishable(row.verdicts.get(name)) for name in names},
        "verdict": {name: verdict.value for name, verdict in row.verdicts.items()},
        "outside": row.outside.model_dump(mode="json") if row.outside else None,
        "flags": list(row.flags),
    }


def _distinguishable(verdict: Verdict | None) -> bool | None:
    """True or false if the comparison can tell; None if it has too few processes or no figure."""
    return None if verdict in (None, Verdict.TOO_FEW, Verdict.UNTOLD) else verdict.distinguishable


def row_columns(row: Row) -> dict[str, Any]:
    """Return a row of a data frame: one value per column, losses as their mean over seeds."""
    flat: dict[str, Any] = {"treatment": row.treatment, "status": row.status.value, "reason": row.reason}
    for name, value in row.metrics.items():
        single = (fmean(value) if value else None) if isinstance(value, tuple) else value
        flat[name] = _number(single)
    for name in metrics():
        effect = row.effects.get(name)
        low, high = effect.interval if effect and effect.interval else (nan, nan)
        flat |= {f"{name}_change": effect.change if effect else nan, f"{name}_low": low, f"{name}_high": high}
        flat[f"{name}_verdict"] = row.verdicts[name].value if name in row.verdicts else None
    for name in (metric.name for metric in metrics().values() if metric.predicted):
        flat[f"predicted_{name}"] = _number(getattr(row.predicted, name) if row.predicted else None)
        flat[f"predicted_{name}_change"] = row.predicted_change.get(name, nan)
    flat["evidence"] = "; ".join(item.observed for item in row.evidence)
    flat["flags"] = "; ".join(row.flags)
    return flat


def _number(value: float | None) -> float:
    """Return a figure, or NaN if it is missing, so that a column of numbers stays one."""
    return nan if value is None else float(value)


NEAR_MEMORY = 0.9
"""Share of the free memory from which memory binds."""
WAITING = 0.1
"""Share of a step's time from which waiting for data binds."""
COMMUNICATING = 0.4
"""Share of a step's time from which communication binds."""
NEAR_RATES = 0.7
"""Time of the work over measured step time from which compute binds."""


class Limit(StrEnum):
    """Resource that keeps a row from being faster or larger."""

    MEMORY = "memory"
    DATA = "data"
    COMMUNICATION = "communication"
    COMPUTE = "compute"
    UNKNOWN = "not known"


class RowLimit(NamedTuple):
    """The limit of one row, and the shares it is decided by; each is None if it was not measured."""

    row: Row
    limit: Limit
    memory: float | None
    data: float | None
    communication: float | None
    compute: float | None


def limits(comparison: "Comparison") -> tuple[RowLimit, ...]:
    """Return the limit of the control and of each row."""
    return tuple(_limit(comparison, row) for row in (comparison.baseline, *comparison.rows))


def _limit(comparison: "Comparison", row: Row) -> RowLimit:
    results = [one.result for one in usable(comparison.record.of(row.treatment))]
    memory, data = _memory(comparison, row, results), _over_runs([one.speed.data_wait_share for one in results])
    shares = [rank.communication_share for one in results for rank in one.ranks]
    communication = _over_runs(shares)
    compute = _compute(row)
    bounds = (
        (Limit.MEMORY, memory, NEAR_MEMORY),
        (Limit.DATA, data, WAITING),
        (Limit.COMMUNICATION, communication, COMMUNICATING),
        (Limit.COMPUTE, compute, NEAR_RATES),
    )
    found = next((limit for limit, share, bound in bounds if share is not None and share >= bound), Limit.UNKNOWN)
    if row.status is Status.OUT_OF_MEMORY:
        found = Limit.MEMORY
    return RowLimit(row, found, memory, data, communication, compute)


def _memory(comparison: "Comparison", row: Row, results: Sequence[RunResult]) -> float | None:
    """Share of the free host memory that a process's peak takes; None on an accelerator, whose memory is another."""
    peak, free = row.metrics.get(PROCESS_PEAK_BYTES.name), comparison.record.protocol.available_bytes
    devices = {one.provenance.environment.device for one in results if one.provenance.environment}
    if devices != {"cpu"} or not isinstance(peak, int | float) or not free:
        return None
    return peak / free


def _compute(row: Row) -> float | None:
    """Seconds of the work at the machine's rates, over the measured step time."""
    measured = row.metrics.get(STEP_SECONDS.name)
    predicted = row.predicted.work_seconds if row.predicted else None
    return predicted / measured if predicted and isinstance(measured, int | float) and measured else None


def _over_runs(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None
