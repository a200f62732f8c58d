"""Published figures beside those that were measured, and printed changes against the document's own table.

Changes are compared, each against the row from which the document counts. If that row is our control, our change has
its interval. Otherwise ours is the ratio of two rows, which has none. A printed change is contradicted if no figures
that round to those of the table give a change that rounds to it.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.errors import UsageError, among, short_text
from assay.records.published import PrintedChange, PublishedColumn, PublishedRow, PublishedStudy
from assay.records.study import BASELINE


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


def recomputed(published: PublishedStudy) -> tuple[Recomputed, ...]:
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
