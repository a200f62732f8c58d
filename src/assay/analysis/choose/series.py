"""Rows in a series: rungs of a ladder, and learning rates.

A rung of a ladder is compared with the rung before and with the control. A ladder is a study of the kind `ladder`, or
one whose only factor is named `rung`. Speed is tokens per second. The multiple of the control is the row's own change.
The multiple of the rung before is a contrast of two rows; its intervals hold together over all rungs. A rung without a
figure is passed over: the next one counts from the last rung that has one.

Learning rates have a stable range: the best rate for each batch size, and the rates that are as good or at least
finite. Rows that differ in nothing but the learning rate make one series. A study that also varies the batch size has a
series for each, and one for each combination of its other levels. The loss of a rate is the mean validation loss over
the seeds that its series shares. A rate at which a run diverged has none. The range around the best rate ends at the
first tested rate on either side whose loss is worse by more than the margin. Rates between two tested ones are not
known.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np

from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import Scale, estimates, row_changes
from assay.analysis.factors.layout import FactorLayout, layout
from assay.analysis.metrics.standard import STEP_SECONDS, TOKENS_PER_SECOND
from assay.analysis.row import Row, usable
from assay.records.published import PublishedStudy
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult

RUNG = "rung"
"""Key of the factor whose named levels are rungs, for ladders that change more than one thing at a rung."""
_LADDER = "ladder"
"""The kind of study that builds its rungs one on top of the other."""
_SPENT = ("tokens", "documents", "minutes")
"""Units that a column of a published table may count (`PublishedColumn.seen`)."""


class Multiple(NamedTuple):
    """A speed as a multiple of another: 2 is twice as fast."""

    value: float
    interval: tuple[float, float] | None


class Printed(NamedTuple):
    """Figures of a rung in a published document; each is None if it has no such figure."""

    name: str
    previous: float | None
    """Speed over that of the last row above with a figure."""
    baseline: float | None
    tokens: float | None
    documents: float | None
    minutes: float | None


class Rung(NamedTuple):
    """One rung, or the control below the first."""

    row: Row
    previous: Multiple | None
    baseline: Multiple | None
    tokens: float | None
    """Training tokens of one run, as the mean over its runs; those of evaluations are not counted."""
    documents: float | None
    """Documents of which one run has read a token, as the mean over its runs; None unless all of them know."""
    first_loss: float | None
    """Training loss of the first step, before any update, as the mean over its runs."""
    printed: Printed | None

    @property
    def tokens_in_its_minutes(self) -> float | None:
        """Tokens that this rung trains in the document's minutes for it, at its own steady speed."""
        speed = self.row.metrics.get(TOKENS_PER_SECOND.name)
        if self.printed is None or self.printed.minutes is None or not isinstance(speed, float):
            return None
        return 60 * self.printed.minutes * speed


def ladder(comparison: Comparison) -> tuple[Rung, ...]:
    """Return the control and the rungs from the bottom; nothing if the study is no ladder or has no times."""
    rows = {row.treatment: row for row in (comparison.baseline, *comparison.rows)}
    names = [name for name in _rungs(comparison.record.kind, layout(comparison.record)) if name in rows]
    if len(names) < 2 or not comparison.record.timed:
        return ()
    steps, printed = _previous(comparison, names, rows), _printed(comparison.record.published)
    return tuple(
        Rung(rows[name], steps.get(name), _baseline(rows[name]), *_seen(comparison, name), printed.get(name))
        for name in names
    )


def _rungs(kind: str, design: FactorLayout) -> list[str]:
    """Return the control and the rungs, without rows that leave one out or turn on one alone."""
    if kind != _LADDER:
        return list(design.rows) if [factor.key for factor in design.factors] == [RUNG] else []
    climbed = {frozenset(factor.key for factor in design.factors[:height]) for height in range(len(design.factors) + 1)}
    return [name for name in design.rows if frozenset(key for key, _ in design.changes(name)) in climbed]


def _baseline(row: Row) -> Multiple | None:
    effect = row.effects.get(TOKENS_PER_SECOND.name)
    if effect is None:
        return None
    low_high = effect.interval
    return Multiple(1 + effect.change, None if low_high is None else (1 + low_high[0], 1 + low_high[1]))


def _seen(comparison: Comparison, name: str) -> tuple[float | None, float | None, float | None]:
    """Return tokens, documents and the first loss of a run of a row."""
    cells = usable(comparison.record.of(name))
    return (
        _mean([one.result.tokens for one in cells]),
        _mean([one.result.documents for one in cells]),
        _mean([one.curve.train_loss[0] if one.curve.train_loss else None for one in cells]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if there are no values, or if one of them is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _previous(comparison: Comparison, names: Sequence[str], rows: Mapping[str, Row]) -> dict[str, Multiple]:
    """Return the speed of each rung as a multiple of the rung before."""
    changes = row_changes(comparison, STEP_SECONDS)
    if changes is None:
        return {}
    measured = [name for name in names if name == BASELINE or name in changes.rows]
    pairs = list(pairwise(measured))
    weights = np.zeros((len(pairs), len(changes.rows)))
    for at, pair in enumerate(pairs):
        for name, weight in zip(pair, (-1.0, 1.0), strict=True):
            if name != BASELINE:
                weights[at, changes.rows.index(name)] = weight
    found = estimates(changes, weights, Scale.RATIO, len(pairs)) if pairs else []
    sizes = {name: comparison.record.of(name)[0].cell.run.tokens_per_step for name in measured}
    multiples = {}
    for (before, after), one in zip(pairs, found, strict=True):
        more = sizes[after] / sizes[before]
        ends = None if one.interval is None else (more / (1 + one.interval[1]), more / (1 + one.interval[0]))
        multiples[after] = Multiple(more / (1 + one.value), ends)
    return multiples


def _printed(published: PublishedStudy | None) -> dict[str, Printed]:
    """Return the document's figures by our rows."""
    return dict(_printed_rows(published)) if published is not None and published.control is not None else {}


def _printed_rows(published: PublishedStudy) -> Iterator[tuple[str, Printed]]:
    at = {
        "speed": [column.metric == TOKENS_PER_SECOND.name for column in published.columns],
        **{kind: [column.seen == kind for column in published.columns] for kind in _SPENT},
    }

    def figure(figures: Sequence[float | None], kind: str) -> float | None:
        return next((value for value, is_it in zip(figures, at[kind], strict=True) if is_it), None)

    control = figure(published.named(published.control or "").figures, "speed")
    before: float | None = None
    for row in published.rows:
        speed = figure(row.figures, "speed")
        if row.row is not None:
            previous, baseline = (speed / one if speed and one else None for one in (before, control))
            spent = (figure(row.figures, kind) for kind in _SPENT)
            yield row.row, Printed(row.name, previous, baseline if row.row != BASELINE else None, *spent)
        before = speed or before


LEARNING_RATE, BATCH_SIZE = "training.learning_rate", "training.batch_size"


class Rate(NamedTuple):
    """One tested learning rate."""

    rate: float
    row: Row
    loss: float | None
    """Mean validation loss over the seeds that all rates with a loss share; None if a run diverged or failed."""
    seeds: int
    """Number of seeds of that mean."""
    diverged: bool


class RateSeries(NamedTuple):
    """Learning rates in ascending order, with all else equal."""

    batch_size: int
    levels: tuple[tuple[str, str], ...]
    """All other factors with their levels."""
    rates: tuple[Rate, ...]
    margin: float

    @property
    def others(self) -> str:
        """Levels of all other factors as text, such as ``"optimizations=lion"``; empty if there are none."""
        return ", ".join(f"{key}={level}" for key, level in self.levels)

    @property
    def best(self) -> Rate | None:
        """The rate with the lowest loss; the lower one of two equal losses. None if no rate has a loss."""
        known = [(one.loss, one.rate, one) for one in self.rates if one.loss is not None]
        return min(known, key=lambda one: one[:2])[2] if known else None

    @property
    def good(self) -> tuple[Rate, ...]:
        """Neighbours of the best rate, and itself, whose loss is within the margin of the best."""
        best = self.best
        if best is None or best.loss is None:
            return ()
        bound, at = best.loss + self.margin, self.rates.index(best)
        within = [one.loss is not None and one.loss <= bound for one in self.rates]
        low = next((place + 1 for place in range(at, -1, -1) if not within[place]), 0)
        high = next((place for place in range(at, len(within)) if not within[place]), len(within))
        return self.rates[low:high]

    @property
    def open_ended(self) -> str:
        """Side on which better rates may lie beyond the tested ones: ``lower``, ``higher``, or empty."""
        if self.best is None:
            return ""
        return "lower" if self.best is self.rates[0] else "higher" if self.best is self.rates[-1] else ""


def learning_rates(comparison: Comparison) -> tuple[RateSeries, ...]:
    """Return each series of at least two learning rates, by batch size and then by the other levels."""
    record = comparison.record
    found: dict[tuple[int, tuple[tuple[str, str], ...]], dict[float, _Tested]] = {}
    for row in (comparison.baseline, *comparison.rows):
        cells = record.of(row.treatment)
        if cells and LEARNING_RATE in cells[0].cell.levels:
            training = cells[0].cell.run.training
            rates = found.setdefault((training.batch_size, _others(cells[0])), {})
            rates.setdefault(training.learning_rate, _Tested(training.learning_rate, row, cells))
    series = (
        RateSeries(batch_size, others, _rates([rates[one] for one in sorted(rates)]), record.loss_margin)
        for (batch_size, others), rates in found.items()
        if len(rates) > 1
    )
    return tuple(sorted(series, key=lambda one: (one.batch_size, one.others)))


def rate_sweep(comparison: Comparison) -> tuple[RateSeries, ...]:
    """Return the series of a study that asks for the best rate: it has no other factor, or as few series as rates."""
    found = tuple(one for one in learning_rates(comparison) if one.best is not None)
    if not any(one.others for one in found):
        return found
    fewest = min(len(one.rates) for one in found)
    return found if len({one.batch_size for one in found}) == 1 and len(found) <= fewest else ()


def _others(one: CellResult) -> tuple[tuple[str, str], ...]:
    return tuple(level for level in one.cell.levels.items() if level[0] not in (LEARNING_RATE, BATCH_SIZE))


class _Tested(NamedTuple):
    """One tested learning rate with its cells."""

    rate: float
    row: Row
    cells: Sequence[CellResult]

    @property
    def diverged(self) -> bool:
        return any(one.result.status is Status.DIVERGED for one in self.cells)

    def losses(self) -> dict[int, float]:
        """Return the validation loss of each seed, as a mean over processes; none if a run diverged or failed."""
        if self.diverged or not (self.row.treatment == BASELINE or self.row.status.finished):
            return {}
        seeds: dict[int, list[float]] = {}
        for one in usable(self.cells):
            if one.result.loss.val_loss is not None:
                seeds.setdefault(one.cell.seed, []).append(one.result.loss.val_loss)
        return {seed: fmean(values) for seed, values in seeds.items()}


def _rates(tested: Sequence[_Tested]) -> tuple[Rate, ...]:
    """Return the rates of a series, with their losses at the seeds that all rates with a loss share."""
    losses = [one.losses() for one in tested]
    known = [set(one) for one in losses if one]
    shared = sorted(set.intersection(*known)) if known else []
    means = [fmean(one[seed] for seed in shared) if one and shared else None for one in losses]
    return tuple(
        Rate(one.rate, one.row, mean, 0 if mean is None else len(shared), one.diverged)
        for one, mean in zip(tested, means, strict=True)
    )
