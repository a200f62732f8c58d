"""The answer of a study in short: the fastest and the lightest row at no worse loss, the lowest loss, and open points.

A row is a choice if it saves time or memory by an amount that can be told from zero. Its loss must also be shown to be
no worse than the control's by more than the margin. Rows that save and are not shown to be as good are named apart.

A study whose factors describe cases has an answer for each of them (`contexts`): changes count from the row that is
the control there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assay.analysis.choose.criteria import (
    Context,
    LogChange,
    LossDifference,
    LossVerdict,
    contexts,
    finished_rows,
    log_change,
    loss_between,
    loss_difference,
    memory_metric,
    time_change,
)
from assay.analysis.choose.target import RowTarget, Targets, targets
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.records.study import BASELINE, ComparisonRecord
from assay.studies.execution.rungs import mean_loss


class FoundTarget(NamedTuple):
    """The outcome of a search."""

    counts: tuple[int, ...]
    """Number of rows that ran in each rung."""
    best: str | None
    """Row of the last rung that ran with the lowest validation loss; None if none of its rows has one."""
    loss: float | None
    """Its validation loss, as the mean over its processes."""
    control: float | None
    """The control's."""


def search_outcome(record: ComparisonRecord) -> FoundTarget | None:
    """Return the outcome of a search; None for a study that is none."""
    if record.halving is None:
        return None
    rungs = [[row for row in rung if record.of(row)] for rung in record.halving.rungs]
    last = next((rung for rung in reversed(rungs) if rung), [])
    losses = {row: loss for row in last if (loss := mean_loss(record.of(row))) is not None}
    best = min(losses, key=lambda row: losses[row], default=None)
    loss = None if best is None else losses[best]
    return FoundTarget(tuple(map(len, rungs)), best, loss, mean_loss(record.of(BASELINE)))


_BETTER = LossVerdict.BETTER


class Candidate(NamedTuple):
    """One row with the changes by which it is chosen."""

    row: Row
    time: LogChange | None
    memory: LogChange | None
    loss: LossDifference | None

    @property
    def as_good(self) -> bool:
        """True if the loss is shown to be no worse than the control's by more than the margin."""
        return self.loss is not None and self.loss.verdict.as_good


class StudyAnswer(NamedTuple):
    """The rows to choose from, and the rows that are left out."""

    context: Context
    """The rows that are compared with each other."""
    fastest: Candidate | None
    lightest: Candidate | None
    lowest: Candidate | None
    """Row with the lowest loss, if it is shown to be better than the control's by more than the margin."""
    rivals: tuple[str, ...]
    """Rows at no worse loss whose time cannot be told from that of the fastest."""
    as_light: tuple[str, ...]
    """Rows at no worse loss whose memory is that of the lightest, or cannot be told from it."""
    worse: tuple[Candidate, ...]
    """Rows that save time or memory, whose loss is shown to be worse."""
    unsure: tuple[Candidate, ...]
    """Rows that save time or memory, whose loss is not shown to be as good; the fastest first."""
    memory: Metric
    target: Targets | None
    first: RowTarget | None
    """Row that reaches a stated target in the least time; None without a stated target, or if none does."""


def answers(comparison: Comparison) -> tuple[StudyAnswer, ...]:
    """Return an answer for each context of a study in which the control and another row finished."""
    found = (_answer(comparison, context) for context in contexts(comparison))
    return tuple(one for one in found if one is not None)


def _answer(comparison: Comparison, context: Context) -> StudyAnswer | None:
    rows = {row.treatment: row for row in finished_rows(comparison) if row.treatment in context.rows}
    control = rows.pop(context.control, None)
    if not rows or control is None or not control.finished:
        return None
    metric = memory_metric(comparison)
    every = [_candidate(comparison, row, control, metric) for row in rows.values()]
    good = [one for one in every if one.as_good]
    saving = [one for one in every if _saves(one.time) or _saves(one.memory)]
    fastest, lightest = _least(good, lambda one: one.time), _least(good, lambda one: one.memory)
    aimed = targets(comparison) if comparison.record.target_loss is not None else None
    return StudyAnswer(
        context=context,
        fastest=fastest,
        lightest=lightest,
        lowest=_lowest(every),
        rivals=tuple(one.row.treatment for one in good if fastest and _as_fast(one, fastest)),
        as_light=tuple(one.row.treatment for one in good if lightest and _as_light(one, lightest)),
        worse=tuple(_by_time(one for one in saving if one.loss and one.loss.verdict is LossVerdict.WORSE)),
        unsure=tuple(_by_time(one for one in saving if not one.loss or one.loss.verdict is LossVerdict.UNKNOWN)),
        memory=metric,
        target=aimed,
        first=_first(aimed, context),
    )


def _candidate(comparison: Comparison, row: Row, control: Row, metric: Metric) -> Candidate:
    """Return a row with its changes since the control of its context."""
    time, memory, loss = _changes(comparison, row, metric)
    if control.treatment == BASELINE:
        return Candidate(row, time, memory, loss)
    time_there, memory_there, loss_there = _changes(comparison, control, metric)
    margin = comparison.record.loss_margin
    return Candidate(
        row,
        None if time is None or time_there is None else time.since(time_there),
        None if memory is None or memory_there is None else memory.since(memory_there),
        None if loss is None or loss_there is None else loss_between(loss, loss_there, margin),
    )


def _changes(
    comparison: Comparison, row: Row, metric: Metric
) -> tuple[LogChange | None, LogChange | None, LossDifference | None]:
    return time_change(comparison, row), log_change(row, metric), loss_difference(comparison, row)


def _saves(change: LogChange | None) -> bool:
    return change is not None and change.sign < 0


def _least(good: Sequence[Candidate], of: Callable[[Candidate], LogChange | None]) -> Candidate | None:
    """Return the row with the lowest change among those that save; of equal ones, the first by name."""
    saving = [(change.log, one.row.treatment, one) for one in good if (change := of(one)) and _saves(change)]
    return min(saving, key=lambda one: one[:2])[2] if saving else None


def _lowest(every: Sequence[Candidate]) -> Candidate | None:
    better = [(one.loss.nats, one.row.treatment, one) for one in every if one.loss and one.loss.verdict is _BETTER]
    return min(better, key=lambda one: one[:2])[2] if better else None


def _as_fast(one: Candidate, fastest: Candidate) -> bool:
    if one is fastest or one.time is None or fastest.time is None or not _saves(one.time):
        return False
    return one.time.since(fastest.time).sign == 0


def _as_light(one: Candidate, lightest: Candidate) -> bool:
    if one is lightest or one.memory is None or lightest.memory is None or not _saves(one.memory):
        return False
    return one.memory.since(lightest.memory).sign == 0


def _by_time(some: Iterable[Candidate]) -> list[Candidate]:
    return sorted(some, key=lambda one: (one.time.log if one.time else 0.0, one.row.treatment))


def _first(aimed: Targets | None, context: Context) -> RowTarget | None:
    """Return the row of a context with the least time to a target, among those that reach it at every seed."""
    rows = [one for one in aimed.rows if one.steps and one.row.treatment in context.rows] if aimed else []
    known = [(one.seconds or one.steps or 0, one.row.treatment, one) for one in rows]
    return min(known, key=lambda one: one[:2])[2] if known else None
