"""Speed of the rungs of a ladder against the rung before and against the control, and what each rung has seen.

A ladder is a study of the kind `ladder`, or one whose only factor is named `rung`. Speed is tokens per second. The
multiple of the control is the row's own change. The multiple of the rung before is a contrast of two rows; its
intervals hold together over all rungs. A rung without a figure is passed over: the next one counts from the last rung
that has one.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np

from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import Scale, estimates, row_changes
from assay.analysis.factors.layout import FactorLayout, layout
from assay.analysis.metrics.time import STEP_SECONDS, TOKENS_PER_SECOND
from assay.analysis.row import Row, usable
from assay.records.published import PublishedStudy
from assay.records.study import BASELINE

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
