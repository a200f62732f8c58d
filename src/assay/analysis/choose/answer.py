"""The answer of a study in short: the fastest and the lightest row at no worse loss, the lowest loss, and open points.

A row is a choice if it saves time or memory by an amount that can be told from zero. Its loss must also be shown to be
no worse than the control's by more than the margin. Rows that save and are not shown to be as good are named apart.

A study whose factors describe cases has an answer for each of them (`contexts`): changes count from the row that is the
control there.

The time to a target is the step, and the seconds of steps, from which the loss stays at or below it. The crossing is
sustained: a loss that falls below the target and rises above it again has not reached it. Validation losses count if
each run was evaluated at least `LEAST_EVALUATIONS` times; a step is then known to one interval between evaluations.
Otherwise the training loss counts, as its mean over the last twentieth of a run's steps. That lags behind by half as
many steps, and is not a loss on held-out text.

If the study states no target, each seed has its own. It is the control's last loss at this seed, plus the margin within
which losses count as the same. So the question is how long each row takes to be as good as the control.

Seconds are those of the first step, and of all further ones at the steady step time of the process. Start, evaluation
and checkpoints are not part of them. A run that never reaches the target is censored: it would need more steps than it
had, and nobody knows how many. A row with such a run has no ratio, because a mean over the others would flatter it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import exp, expm1, inf, log
from statistics import fmean
from typing import Literal, NamedTuple

from assay.analysis.caveats import ended_claims
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
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect, figure, rounds, typical
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.analysis.row import Row, usable
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult, ComparisonRecord, Curve
from assay.studies.execution.order import mean_loss

LEAST_EVALUATIONS = 8
"""Fewest evaluations of each run from which a crossing is read."""
_WINDOW = 20
"""Part of a run's steps over which training losses are averaged: one twentieth."""

Basis = Literal["validation loss", "training loss"]
Losses = Sequence[tuple[int, float]]
"""Pairs of steps done and the loss; infinite if it is not finite."""


class Reached(NamedTuple):
    """One run, and when it reached the target for good."""

    seed: int
    within: int
    """Steps of the run."""
    steps: int | None
    """None if it did not."""
    seconds: float | None
    """None if it did not, or if times were not measured."""


class RowTarget(NamedTuple):
    """All runs of one row."""

    row: Row
    runs: tuple[Reached, ...]
    ratio: Effect | None
    """Change of the seconds against the control, or of the steps if times were not measured; paired by seed."""

    @property
    def censored(self) -> int:
        """Number of runs that did not reach the target."""
        return sum(one.steps is None for one in self.runs)

    @property
    def steps(self) -> float | None:
        """Mean number of steps; None if a run did not reach the target."""
        return None if self.censored or not self.runs else fmean(one.steps or 0 for one in self.runs)

    @property
    def seconds(self) -> float | None:
        """Geometric mean of the seconds; None if a run did not reach the target, or has no time."""
        known = [log(one.seconds) for one in self.runs if one.seconds]
        return exp(fmean(known)) if known and len(known) == len(self.runs) else None


class Targets(NamedTuple):
    """A target, and when each row reached it."""

    basis: Basis
    resolution: int
    """Largest number of steps between evaluations, or steps over which the training loss is averaged."""
    target: float | None
    """The loss that the study states; None if the control's last loss of each seed is the target."""
    rows: tuple[RowTarget, ...]
    """The control first."""


def targets(comparison: Comparison) -> Targets | None:
    """Return the time of each row to the target; None if the control has no losses."""
    record = comparison.record
    cells = {name: [one for one in record.of(name) if _tried(one)] for name in (BASELINE, *record.treatments)}
    every = [one for some in cells.values() for one in some]
    if not any(one.curve.train_loss or one.curve.evaluations for one in cells[BASELINE]):
        return None
    sampled = all(len(one.curve.evaluations) >= LEAST_EVALUATIONS for one in usable(every))
    basis: Basis = "validation loss" if sampled else "training loss"
    goals = _goals(comparison, cells[BASELINE], basis)
    kept, ended = rounds(usable(record.cells), record.rounds) if record.timed else {}, ended_claims(record)
    runs = {
        name: tuple(
            _reached(one, basis, goals[one.cell.seed], {} if name in ended else kept)
            for one in some
            if one.cell.seed in goals
        )
        for name, some in cells.items()
    }
    rows = [row for row in (comparison.baseline, *comparison.rows) if runs[row.treatment]]
    ratios = {row.treatment: _ratio(runs[BASELINE], runs[row.treatment], len(record.treatments)) for row in rows}
    found = tuple(
        RowTarget(row, runs[row.treatment], None if row.treatment == BASELINE else ratios[row.treatment])
        for row in rows
    )
    spacing = max((_spacing(one.curve, basis) for one in usable(every)), default=1)
    return Targets(basis, spacing, record.target_loss, found)


def sustained_step(losses: Losses, target: float) -> int | None:
    """Return the steps done from which all losses are at or below a target; None if the last one is not."""
    above = [at for at, (_, loss) in enumerate(losses) if not loss <= target]
    first = above[-1] + 1 if above else 0
    return losses[first][0] if first < len(losses) else None


def trailing(losses: Sequence[float | None], window: int) -> list[tuple[int, float]]:
    """Return the mean of the last `window` losses after each step that has as many; infinite if one is not finite."""
    sums = list(accumulate((loss or 0.0 for loss in losses), initial=0.0))
    missing = list(accumulate((loss is None for loss in losses), initial=0))
    return [
        (end, inf if missing[end] > missing[end - window] else (sums[end] - sums[end - window]) / window)
        for end in range(window, len(losses) + 1)
    ]


def _tried(one: CellResult) -> bool:
    """True if a run ended by itself: it finished, or it diverged and so never reaches a target."""
    return one.result.status in (Status.DONE, Status.BUDGET_REACHED, Status.DIVERGED)


def _losses(curve: Curve, basis: Basis) -> Losses:
    if basis == "validation loss":
        return [(step, inf if loss is None else loss) for step, loss in curve.evaluations]
    return trailing(curve.train_loss, _window(curve))


def _window(curve: Curve) -> int:
    return max(1, len(curve.train_loss) // _WINDOW)


def _spacing(curve: Curve, basis: Basis) -> int:
    """Steps between two evaluations, at most, or the window of the training loss."""
    if basis == "training loss":
        return _window(curve)
    steps = [0, *(step for step, _ in curve.evaluations)]
    return max(after - before for before, after in pairwise(steps))


def _goals(comparison: Comparison, control: Sequence[CellResult], basis: Basis) -> Mapping[int, float]:
    """Target loss of each seed."""
    stated, margin = comparison.record.target_loss, comparison.record.loss_margin
    found: dict[int, list[float]] = {}
    for one in usable(control):
        if losses := _losses(one.curve, basis):
            found.setdefault(one.cell.seed, []).append(losses[-1][1])
    if stated is not None:
        return {one.cell.seed: stated for one in comparison.record.cells}
    return {seed: fmean(losses) + margin for seed, losses in found.items()}


def _reached(one: CellResult, basis: Basis, target: float, kept: Mapping[int, Sequence[int]]) -> Reached:
    within = len(one.curve.train_loss) or one.result.steps
    steps = None if one.result.status is Status.DIVERGED else sustained_step(_losses(one.curve, basis), target)
    pace = None if one.wave not in kept else figure(STEP_SECONDS, one.result, kept[one.wave])
    if not steps or pace is None:
        return Reached(one.cell.seed, within, steps, 0.0 if steps == 0 and pace is not None else None)
    step = exp(pace)
    first = one.result.speed.first_step_seconds or step
    return Reached(one.cell.seed, within, steps, first + (steps - 1) * step)


def _ratio(control: Sequence[Reached], treated: Sequence[Reached], comparisons: int) -> Effect | None:
    """Change of the time to the target, with an interval over seeds; None if a run of either is censored."""
    both = [*control, *treated]
    if any(one.steps is None for one in both):
        return None
    timed = all(one.seconds is not None for one in both)
    before, after = (_logs(some, timed=timed) for some in (control, treated))
    differences = [after[seed] - before[seed] for seed in sorted(after) if seed in before]
    if not differences:
        return None
    found = typical(differences, comparisons)
    mean, half = found.middle, found.half
    ends = None if half is None else (expm1(mean - half), expm1(mean + half))
    return Effect(
        change=expm1(mean),
        interval=ends,
        pairs=len(differences),
        equal=not any(differences),
        untold=found.reason,
    )


def _logs(runs: Sequence[Reached], *, timed: bool) -> dict[int, float]:
    """Mean logarithm of the time by seed: of seconds, or of steps."""
    found: dict[int, list[float]] = {}
    for seed, value in _times(runs, timed=timed):
        found.setdefault(seed, []).append(log(value))
    return {seed: fmean(logs) for seed, logs in found.items()}


def _times(runs: Sequence[Reached], *, timed: bool) -> Iterator[tuple[int, float]]:
    for one in runs:
        value = one.seconds if timed else one.steps
        if value:
            yield one.seed, float(value)


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
