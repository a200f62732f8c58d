"""Criteria by which rows are chosen: memory, training time, loss within a margin, bytes, in each context.

The change from one row to another is the difference of their changes against the control. Its half width is the root of
the sum of both squared half widths. That is wide enough, because it counts the chance effects of the control, which
both changes share, twice instead of not at all.

That two losses are equal cannot be shown. That they differ by less than a margin can: the whole interval lies within
it. This is the idea of two one-sided tests (Schuirmann 1987). They need an interval of 90 %; the one here is wider, as
it holds in 95 % of comparisons for all rows together.

Training time is the step time multiplied by the number of steps. If all rows train for as many steps, its change is
that of the step time. A criterion counts only if every row that finished has a figure of it.

A smaller model is always the lighter one, and nobody with a model of some size is helped by that. So rows are compared
within one context, with the row there that has the control's level of every other factor. A study without such factors
is one context, whose control is the study's.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from math import expm1, hypot, inf, log, log1p
from statistics import fmean
from typing import Literal, NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.analysis.factors.layout import FactorLayout, layout, level_name
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import PROCESS_PEAK_BYTES, SENT_BYTES, STEP_SECONDS, TENSORS_PEAK_BYTES, loss_of
from assay.analysis.row import Row, usable
from assay.errors import UsageError, among, short_text
from assay.records.study import BASELINE, CellResult


class LogChange(NamedTuple):
    """Change of a metric on the log scale, with the half width of its interval."""

    log: float
    half: float | None
    """None if there is no interval; 0 if the metric repeats exactly. A measured change's farther end gives it."""
    ends: tuple[float, float] | None = None
    """Ends of a measured change's own interval, which need not lie evenly about it; None for one of two changes."""

    @property
    def sign(self) -> int:
        """Sign of the change: −1 or 1 if it can be told from zero, else 0."""
        if self.ends is not None:
            return (self.ends[0] > 0) - (self.ends[1] < 0)
        if self.half is None or abs(self.log) <= self.half:
            return 0
        return 1 if self.log > 0 else -1

    @property
    def fraction(self) -> float:
        """The change as a fraction: −0.1 is ten percent less."""
        return expm1(self.log)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the fraction; None if there is none, or if the metric repeats exactly."""
        if not self.half:
            return None
        low, high = self.ends or (self.log - self.half, self.log + self.half)
        return expm1(low), expm1(high)

    def shifted(self, by: float) -> "LogChange":
        """Return the change with a known amount more, on the log scale."""
        ends = None if self.ends is None else (self.ends[0] + by, self.ends[1] + by)
        return self._replace(log=self.log + by, ends=ends)

    def since(self, other: "LogChange") -> "LogChange":
        """Return the change from another row to this one."""
        if other == LogChange(0.0, 0.0):  # the control
            return self
        half = None if self.half is None or other.half is None else hypot(self.half, other.half)
        return LogChange(self.log - other.log, half)


def log_change(row: Row, metric: Metric) -> LogChange | None:
    """Return a row's change against the control, which itself has changed by exactly nothing; None without one."""
    if row.treatment == BASELINE:
        return None if row.metrics.get(metric.name) is None else LogChange(0.0, 0.0)
    effect = row.effects.get(metric.name)
    return None if effect is None or effect.change <= -1 else _logarithmic(effect, exact=metric.kind == "exact")


def _logarithmic(effect: Effect, *, exact: bool) -> LogChange:
    """Return an effect on the log scale with its own interval, and as wide as the farther end of that."""
    middle = log1p(effect.change)
    if effect.equal:
        return LogChange(middle, 0.0)
    if effect.interval is None:
        return LogChange(middle, 0.0 if exact else None)
    low, high = (log1p(end) if end > -1 else -inf for end in effect.interval)
    return LogChange(middle, max(abs(low - middle), abs(high - middle)), (low, high))


class LossVerdict(StrEnum):
    """Verdict of an interval on a loss, relative to a margin."""

    EQUAL = "bit-equal"
    BETTER = "better"
    """The whole interval lies below the margin's lower end."""
    SAME = "same"
    """The whole interval lies within the margin."""
    NO_WORSE = "no worse"
    """The upper end lies within the margin, the lower end below it."""
    WORSE = "worse"
    UNKNOWN = "not shown"

    @property
    def as_good(self) -> bool:
        """True if the loss is shown to be no worse by more than the margin."""
        return self not in (LossVerdict.WORSE, LossVerdict.UNKNOWN)


class LossDifference(NamedTuple):
    """Difference of a loss from the control's, in nats per token; of a user's own loss, in its unit."""

    nats: float
    half: float | None
    """Half width of its interval; None below three seeds."""
    verdict: LossVerdict

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the difference; None if there is none."""
        return None if self.half is None else (self.nats - self.half, self.nats + self.half)


def loss_verdict(nats: float, half: float | None, margin: float) -> LossVerdict:
    """Return what an interval of a difference shows."""
    if half is None:
        return LossVerdict.UNKNOWN
    low, high = nats - half, nats + half
    if high < -margin:
        return LossVerdict.BETTER
    if high <= margin:
        return LossVerdict.SAME if low >= -margin else LossVerdict.NO_WORSE
    return LossVerdict.WORSE if low > margin else LossVerdict.UNKNOWN


def loss_difference(comparison: Comparison, row: Row) -> LossDifference | None:
    """Return the difference of a row's loss from the control's; None if either is missing."""
    if row.treatment == BASELINE:
        measured = row.metrics.get(loss_of(comparison.run).name)
        return LossDifference(0.0, 0.0, LossVerdict.EQUAL) if measured else None
    effect = row.effects.get(loss_of(comparison.run).name)
    scale = _scale(comparison, row)
    if effect is None or scale is None:
        return None
    if effect.equal:
        return LossDifference(0.0, 0.0, LossVerdict.EQUAL)
    nats = effect.change * scale
    half = None if effect.interval is None else (effect.interval[1] - effect.interval[0]) / 2 * scale
    return LossDifference(nats, half, loss_verdict(nats, half, comparison.record.loss_margin))


def loss_between(one: LossDifference, other: LossDifference, margin: float) -> LossDifference:
    """Return the difference of one row's loss from another's, as `log_change` does for other metrics."""
    nats = one.nats - other.nats
    half = None if one.half is None or other.half is None else hypot(one.half, other.half)
    return LossDifference(nats, half, loss_verdict(nats, half, margin))


def loss_differences(comparison: Comparison) -> dict[str, LossDifference]:
    """Return the difference of every row that has one, by its name."""
    found = {row.treatment: loss_difference(comparison, row) for row in comparison.rows}
    return {name: one for name, one in found.items() if one is not None}


def _scale(comparison: Comparison, row: Row) -> float | None:
    """Mean loss of the control over the seeds of a row, of which its effect is a fraction."""
    loss = loss_of(comparison.run)
    own = _by_seed(usable(comparison.record.of(row.treatment)), loss)
    control = _by_seed(usable(comparison.record.references), loss)
    means = [fmean(control[seed]) for seed in own if seed in control]
    return fmean(means) if means else None


def _by_seed(cells: Sequence[CellResult], metric: Metric) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for one in cells:
        if (loss := metric.of_run(one.result)) is not None:
            found.setdefault(one.cell.seed, []).append(loss)
    return found


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


def finished_rows(comparison: Comparison) -> tuple[Row, ...]:
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
    return change.shifted(log(after / before))


def same_steps(comparison: Comparison) -> bool:
    """Return True if all rows that finished have as many steps, so that training time changes as the step time does."""
    return len({steps_of(comparison, row) for row in finished_rows(comparison)}) == 1


def memory_metric(comparison: Comparison) -> Metric:
    """Return the metric that stands for memory: the peak of tensors, or of the process if that was not measured."""
    every = all(row.metrics.get(TENSORS_PEAK_BYTES.name) is not None for row in finished_rows(comparison))
    return TENSORS_PEAK_BYTES if every else PROCESS_PEAK_BYTES


def criteria(comparison: Comparison, *, varying: bool = True) -> tuple[Criterion, ...]:
    """Return the criteria of which every finished row has a figure; if `varying`, those in which rows differ."""
    rows = finished_rows(comparison)
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


Levels = tuple[tuple[str, str], ...]


class Context(NamedTuple):
    """One level of each factor that is context, and the rows that have them."""

    levels: Levels
    """Key and level of each of these factors; empty if the study has none."""
    control: str
    """Row with the control's level of every other factor."""
    rows: frozenset[str]
    """All rows of the context, its control among them."""

    @property
    def name(self) -> str:
        """The levels as text; empty if there are none."""
        return ", ".join(level_name(*one) for one in self.levels)


def contexts(comparison: Comparison) -> tuple[Context, ...]:
    """Return the contexts of a study; that of the study's control is the first."""
    return contexts_of(layout(comparison.record), comparison.record.context)


def contexts_of(design: FactorLayout, keys: Collection[str]) -> tuple[Context, ...]:
    """Return the contexts of rows, if the factors of these keys are context.

    Rows whose own control is not among them belong to no context, because they have nothing to be compared with.
    """
    places = [at for at, factor in enumerate(design.factors) if factor.key in keys]
    others = [at for at in range(len(design.factors)) if at not in places]
    found = []
    for levels in product(*(design.factors[at].levels for at in places)):
        rows = [name for name, own in design.rows.items() if tuple(own[at] for at in places) == levels]
        plain = (name for name in rows if all(design.rows[name][at] == design.factors[at].levels[0] for at in others))
        control = next(plain, None)
        if control is not None:
            named = tuple((design.factors[at].key, level) for at, level in zip(places, levels, strict=True))
            found.append(Context(named, control, frozenset(rows)))
    return tuple(found)


def check_context(keys: Collection[str], factors: Collection[str]) -> None:
    """Raise `UsageError` if a study names a factor as context that it does not have, or leaves nothing to choose."""
    for key in keys:
        if key not in factors:
            raise UsageError(
                f"context names the factor {short_text(key)}, which the study does not have{among(key, factors)}"
            )
    if keys and set(keys) == set(factors):
        raise UsageError("every factor of the study is context, so there is nothing to choose; give one no role")
