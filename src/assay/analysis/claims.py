"""Claims on a study against what it found: expectations, published figures, and placebos, which change nothing.

An interval decides, and those of all rows hold together. A change of at least a size is confirmed if the whole interval
lies beyond the size, and refuted if none of it does. That there is no change cannot be shown; that it is smaller than a
size can (equivalence): the whole interval lies within the size. A metric that repeats exactly has an interval of one
value. In all other cases the comparison cannot tell.

An effect of factors is judged in the same way, on the scale of ratios, by its interval in the table of effects. If the
design cannot tell it from another effect, the comparison cannot tell either.

Changes are compared, each against the row from which the document counts. If that row is our control, our change has
its interval. Otherwise ours is the ratio of two rows, which has none. A printed change is contradicted if no figures
that round to those of the table give a change that rounds to it.

Whatever a study says of a placebo, it would say of an optimization that does nothing. Its losses and its peak of
tensors must be those of the row that it repeats. Its time shows how far equal runs lie apart by chance.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assay.analysis.choose.criteria import log_change
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import STEP_SECONDS, TENSORS_PEAK_BYTES
from assay.analysis.row import Row, usable
from assay.config.run import ResolvedRun
from assay.errors import UsageError, among, short_text
from assay.records.published import PrintedChange, PublishedColumn, PublishedRow, PublishedStudy
from assay.records.study import BASELINE, Curve, Expectation, is_placebo

if TYPE_CHECKING:
    from assay.analysis.factors.changes import MetricEffects

_ZERO = 1e-9
"""Largest error of a sum of exact changes."""


class Outcome(StrEnum):
    """Outcome of an expectation."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_DISTINGUISHABLE = "not distinguishable"
    NOT_MEASURED = "not measured"


class JudgedExpectation(NamedTuple):
    """An expectation and its outcome."""

    expectation: Expectation
    outcome: Outcome
    effect: Effect | None
    """The measured change; None if there is none."""


def judge_expectations(
    expectations: Sequence[Expectation], rows: Sequence[Row], effects: "Sequence[MetricEffects]" = ()
) -> tuple[JudgedExpectation, ...]:
    """Return the outcome of each expectation; `effects` are those of the factors by metric."""
    known = {row.treatment: row for row in rows}
    found = []
    for one in expectations:
        if one.effect:
            found.append(_of_factors(one, effects))
            continue
        effect = known[one.row].effects.get(one.metric) if one.row in known else None
        found.append(JudgedExpectation(one, Outcome.NOT_MEASURED if effect is None else outcome(one, effect), effect))
    return tuple(found)


def _of_factors(expected: Expectation, effects: "Sequence[MetricEffects]") -> JudgedExpectation:
    """Return the outcome for a main effect or an interaction."""
    wanted = frozenset(expected.effect.items())
    terms = [term for metric in effects if metric.metric == expected.metric for term in metric.effects]
    for term in terms:
        names = [frozenset(one) for one in (term.changes, *term.aliases)]
        if wanted in names:
            value, ends = term.ratio.value, term.ratio.interval
            equal = ends is None and abs(value) < _ZERO and metrics()[expected.metric].kind == "exact"
            effect = Effect(change=value, interval=ends, pairs=0, equal=equal)
            alone = outcome(expected, effect)
            return JudgedExpectation(expected, alone if len(names) == 1 else Outcome.NOT_DISTINGUISHABLE, effect)
    return JudgedExpectation(expected, Outcome.NOT_MEASURED, None)


def outcome(expected: Expectation, effect: Effect) -> Outcome:
    """Return what a measured change says of an expectation."""
    ends = _ends(expected.metric, effect)
    if ends is None:
        return Outcome.NOT_DISTINGUISHABLE
    low, high = ends
    if expected.change == "higher":
        low, high = -high, -low
    size = expected.size
    if expected.change == "none":
        inside, outside = -size <= low and high <= size, low > size or high < -size
    else:
        inside, outside = (high < 0 and high <= -size), (low > -size or low >= 0)
    return Outcome.CONFIRMED if inside else Outcome.REFUTED if outside else Outcome.NOT_DISTINGUISHABLE


def check_expectations(
    expectations: Sequence[Expectation], rows: set[str], factors: Mapping[str, Sequence[str]]
) -> None:
    """Raise `UsageError` for an expectation of a row, an effect or a metric that the study does not have.

    `factors` has the levels of each factor, the control's first.
    """
    known = metrics()
    for one in expectations:
        if one.effect:
            _check_effect(one, factors)
        elif one.row not in rows:
            hint = among(one.row, sorted(rows))
            raise UsageError(f"expects names the row {short_text(one.row)}, which the study does not have{hint}")
        if one.metric not in known:
            hint = among(one.metric, known)
            raise UsageError(f"expects names the metric {short_text(one.metric)}, which does not exist{hint}")
        if one.effect and (known[one.metric].per_step is not None or not known[one.metric].shown):
            raise UsageError(f"expects names an effect on {one.metric}, which has none; name another, as step_seconds")


def _check_effect(expected: Expectation, factors: Mapping[str, Sequence[str]]) -> None:
    for key, level in expected.effect.items():
        if key not in factors:
            raise UsageError(
                f"expects names the factor {short_text(key)}, which the study does not have{among(key, factors)}"
            )
        if level not in factors[key]:
            hint = among(level, factors[key])
            raise UsageError(f"expects names {key}={level}, which is no level of the study{hint}")
        if level == factors[key][0]:
            raise UsageError(f"expects names {key}={level}, which is the control's level; effects are of the others")


def _ends(metric: str, effect: Effect) -> tuple[float, float] | None:
    if effect.equal:
        return 0.0, 0.0
    if effect.interval is None and metrics()[metric].kind == "exact":
        return effect.change, effect.change
    return effect.interval


class Agreement(StrEnum):
    """Relation of our change to the published one."""

    WITHIN = "within our interval"
    SAME = "same direction"
    OPPOSITE = "opposite direction"
    ONE = "only one of them changes"
    NEITHER = "neither changes"
    UNCERTAIN = "ours not distinguishable"
    NO_INTERVAL = "no interval of ours"
    UNKNOWN = "–"


class Beside(NamedTuple):
    """One published figure and our counterpart."""

    row: PublishedRow
    column: PublishedColumn
    figure: float
    change: float | None
    """Change in the document; None of the row from which changes count."""
    ours: Effect | None
    """Our change; None if the row or the metric was not measured."""
    agreement: Agreement


class Recomputed(NamedTuple):
    """A printed change, and the change by the document's own table."""

    printed: PrintedChange
    change: float
    contradicted: bool


def check_published(published: PublishedStudy | None, rows: set[str]) -> None:
    """Raise `UsageError` if a published table names a row or a metric that the study does not have."""
    known = metrics()
    for row in published.rows if published else ():
        if row.row is not None and row.row not in rows:
            hint = among(row.row, sorted(rows))
            raise UsageError(f"published names the row {short_text(row.row)}, which the study does not have{hint}")
    for column in published.columns if published else ():
        if column.metric is not None and column.metric not in known:
            hint = among(column.metric, known)
            raise UsageError(f"published names the metric {short_text(column.metric)}, which does not exist{hint}")


def beside(comparison: Comparison) -> tuple[Beside, ...]:
    """Return every published figure that has a metric of ours and a row of ours, with both changes."""
    published = comparison.record.published
    if published is None:
        return ()
    ours = {row.treatment: row for row in comparison.rows}
    return tuple(_beside(published, ours))


def recompute_changes(published: PublishedStudy) -> tuple[Recomputed, ...]:
    """Return every printed change with the change by the table."""
    return tuple(_recomputed(published, one) for one in published.printed)


def _beside(published: PublishedStudy, ours: dict[str, Row]) -> Iterator[Beside]:
    for row in published.rows:
        reference = published.reference(row)
        for index, column in enumerate(published.columns):
            figure, before = row.figures[index], reference.figures[index]
            if row.row is None or column.metric is None or figure is None:
                continue
            change = figure / before - 1 if before and row is not reference else None
            effect = None if row is reference else _ours(column.metric, row.row, reference.row, ours)
            yield Beside(row, column, figure, change, effect, _agreement(column.metric, change, effect))


def _ours(metric: str, row: str, reference: str | None, ours: dict[str, Row]) -> Effect | None:
    """Return our change of a row against another one."""
    after = _effect(metric, row, ours)
    if reference == BASELINE or after is None:
        return after
    before = _effect(metric, reference, ours)
    if before is None or before.change <= -1:
        return None
    change = (1 + after.change) / (1 + before.change) - 1
    return Effect(change=change, interval=None, pairs=min(before.pairs, after.pairs))


def _effect(metric: str, row: str | None, ours: dict[str, Row]) -> Effect | None:
    if row == BASELINE:
        return Effect(change=0.0, interval=None, pairs=0, equal=True)
    return ours[row].effects.get(metric) if row in ours else None


def _agreement(metric: str, change: float | None, ours: Effect | None) -> Agreement:
    if change is None or ours is None:
        return Agreement.UNKNOWN
    if ours.interval is None and not ours.equal and metrics()[metric].kind != "exact":
        return Agreement.NO_INTERVAL
    low, high = ours.interval or (ours.change, ours.change)
    if not change and ours.equal:
        return Agreement.NEITHER
    if low <= change <= high:
        return Agreement.WITHIN if low < high else Agreement.SAME
    if low < 0 < high:
        return Agreement.UNCERTAIN
    if not change or not ours.change:
        return Agreement.ONE
    return Agreement.SAME if (change < 0) == (ours.change < 0) else Agreement.OPPOSITE


def _recomputed(published: PublishedStudy, one: PrintedChange) -> Recomputed:
    after, before = (published.figure(name, one.column) for name in (one.row, one.against))
    half = 0.5 * 10.0 ** -next(column.digits for column in published.columns if column.name == one.column)
    lowest, highest = (after - half) / (before + half) - 1, (after + half) / (before - half) - 1
    text = one.printed.removesuffix(" %").replace("−", "-")
    rounding = 0.5 * 10.0 ** -len(text.partition(".")[2])
    told = 100 * lowest <= float(text) + rounding and float(text) - rounding <= 100 * highest
    return Recomputed(one, after / before - 1, not told)


class Placebo(NamedTuple):
    """One placebo and the row that it repeats."""

    row: str
    repeats: str
    losses_equal: bool
    """True if every training loss and every evaluation is equal to the last bit, at each seed that both have."""
    peak_equal: bool
    step_change: float | None
    """Change of the step time against the row that it repeats, as a fraction; None if one was not timed."""


def placebos(comparison: Comparison) -> tuple[Placebo, ...]:
    """Return each placebo of a study that finished, with the row that it repeats."""
    record = comparison.record
    found = []
    known: list[tuple[ResolvedRun, str]] = []
    for row in (BASELINE, *record.treatments):
        cells = record.of(row)
        if not cells:
            continue
        run = cells[0].cell.run.model_copy(update={"seed": 0})
        placebo = any(map(is_placebo, cells[0].cell.levels.values()))
        repeated = next((label for other, label in known if other == run), None)
        if placebo and repeated is not None and usable(cells):
            found.append(_held(comparison, row, repeated))
        elif not placebo:
            known.append((run, row))
    return tuple(found)


def _held(comparison: Comparison, row: str, repeated: str) -> Placebo:
    ours, theirs = _losses(comparison, row), _losses(comparison, repeated)
    common = ours.keys() & theirs.keys()
    by_name = {one.treatment: one for one in (comparison.baseline, *comparison.rows)}
    rows = by_name[row], by_name[repeated]
    peaks = [one.metrics.get(TENSORS_PEAK_BYTES.name) for one in rows]
    here, there = (log_change(one, STEP_SECONDS) for one in rows)
    return Placebo(
        row=row,
        repeats=repeated,
        losses_equal=bool(common) and all(ours[seed] == theirs[seed] for seed in common),
        peak_equal=peaks[0] == peaks[1],
        step_change=None if here is None or there is None else here.since(there).fraction,
    )


def _losses(comparison: Comparison, row: str) -> dict[int, tuple[Curve, float | None, float | None]]:
    """Return the losses of a row's first finished process at each seed: all steps, and the last ones on record."""
    found: dict[int, tuple[Curve, float | None, float | None]] = {}
    for one in usable(comparison.record.of(row)):
        found.setdefault(one.cell.seed, (one.curve, one.result.loss.train_loss, one.result.loss.val_loss))
    return found
