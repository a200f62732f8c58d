"""Criteria by which rows are chosen: memory, training time, validation loss, and bytes communicated.

Training time is the step time multiplied by the number of steps. If all rows train for as many steps, its change is
that of the step time. A criterion counts only if every row that finished has a figure of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import fmean
from typing import Literal

from assay.analysis.choices.equivalence import LossDifference, LossVerdict, loss_between, loss_difference
from assay.analysis.choices.log_change import LogChange, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.metrics.communication import SENT_BYTES
from assay.analysis.metrics.loss import loss_of
from assay.analysis.metrics.memory import PROCESS_PEAK_BYTES, TENSORS_PEAK_BYTES
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import Row, usable

Name = Literal["memory", "time", "loss", "communicated"]
Order = Callable[[str, str], tuple[int, bool]]


@dataclass(frozen=True)
class Criterion:
    """One criterion with the figures of all rows; less is better."""

    name: Name
    metric: Metric
    figures: dict[str, float]
    """Figures by row."""
    order: Order
    """Compare two rows: −1 if the first is better, 0 if no difference is shown, and whether intervals decided it."""


def finished(comparison: Comparison) -> tuple[Row, ...]:
    """Return the control and the rows all of whose runs finished, in the order of the record."""
    rows = (comparison.baseline, *comparison.rows)
    return tuple(row for row in rows if row.status.finished and row.finished)


def steps_of(comparison: Comparison, row: Row) -> float:
    """Return the number of steps of a row's runs, on average; 0 if none is known."""
    cells = usable(comparison.record.of(row.treatment))
    return fmean(one.result.steps for one in cells) if cells else 0.0


def time_change(comparison: Comparison, row: Row) -> LogChange | None:
    """Return the change of a row's training time: of its step time, and of its number of steps."""
    change = log_change(row, STEP_SECONDS)
    before, after = steps_of(comparison, comparison.baseline), steps_of(comparison, row)
    if change is None or not before or not after:
        return None
    return change._replace(log=change.log + log(after / before))


def same_steps(comparison: Comparison) -> bool:
    """Return True if all rows that finished have as many steps, so that training time changes as the step time does."""
    return len({steps_of(comparison, row) for row in finished(comparison)}) == 1


def memory_metric(comparison: Comparison) -> Metric:
    """Return the metric that stands for memory: the peak of tensors, or of the process if that was not measured."""
    every = all(row.metrics.get(TENSORS_PEAK_BYTES.name) is not None for row in finished(comparison))
    return TENSORS_PEAK_BYTES if every else PROCESS_PEAK_BYTES


def criteria(comparison: Comparison, *, varying: bool = True) -> tuple[Criterion, ...]:
    """Return the criteria of which every finished row has a figure; if `varying`, those in which rows differ."""
    rows = finished(comparison)
    makers = (_memory, _time, _loss, _communicated)
    found = [one for make in makers if (one := make(comparison, rows)) is not None]
    whole = (one for one in found if rows and len(one.figures) == len(rows))
    return tuple(one for one in whole if not varying or len(set(one.figures.values())) > 1)


def _memory(comparison: Comparison, rows: Sequence[Row]) -> Criterion | None:
    metric = memory_metric(comparison)
    figures = {row.treatment: value for row in rows if isinstance(value := row.metrics.get(metric.name), int | float)}
    return _by_logs("memory", metric, figures, {row.treatment: log_change(row, metric) for row in rows})


def _time(comparison: Comparison, rows: Sequence[Row]) -> Criterion | None:
    figures = {
        row.treatment: value * steps_of(comparison, row)
        for row in rows
        if isinstance(value := row.metrics.get(STEP_SECONDS.name), int | float)
    }
    return _by_logs("time", STEP_SECONDS, figures, {row.treatment: time_change(comparison, row) for row in rows})


def _loss(comparison: Comparison, rows: Sequence[Row]) -> Criterion:
    loss = loss_of(comparison.run)
    values = {row.treatment: row.metrics.get(loss.name) for row in rows}
    figures = {name: fmean(value) for name, value in values.items() if isinstance(value, tuple) and value}
    known = {row.treatment: found for row in rows if (found := loss_difference(comparison, row)) is not None}
    return Criterion("loss", loss, figures, partial(_by_margin, known, comparison.record.loss_margin))


def _communicated(comparison: Comparison, rows: Sequence[Row]) -> Criterion:
    """Bytes communicated, which are none on a single rank."""
    figures = {row.treatment: float(max((rank.sent_bytes for rank in row.ranks), default=0)) for row in rows}
    return Criterion("communicated", SENT_BYTES, figures, partial(_by_figure, figures))


def _by_logs(
    name: Name, metric: Metric, figures: dict[str, float], changes: dict[str, LogChange | None]
) -> Criterion | None:
    known = {row: one for row, one in changes.items() if one is not None}
    return Criterion(name, metric, figures, partial(_by_change, known)) if known.keys() >= figures.keys() else None


def _by_change(changes: dict[str, LogChange], one: str, other: str) -> tuple[int, bool]:
    change = changes[one].since(changes[other])
    return (_sign(change.log), False) if change.half is None else (change.sign, True)


def _by_margin(known: dict[str, LossDifference], margin: float, one: str, other: str) -> tuple[int, bool]:
    if one not in known or other not in known:
        return 0, False
    between = loss_between(known[one], known[other], margin)
    sure = {LossVerdict.SAME: 0, LossVerdict.BETTER: -1, LossVerdict.WORSE: 1}
    if between.verdict in sure:
        return sure[between.verdict], True
    return (0 if abs(between.nats) <= margin else _sign(between.nats)), False


def _by_figure(figures: dict[str, float], one: str, other: str) -> tuple[int, bool]:
    return _sign(figures[one] - figures[other]), True


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
