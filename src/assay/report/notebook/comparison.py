"""A comparison as plain rows: a row per treatment with all metrics, sentences, footnotes."""

from collections.abc import Iterator

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.report.blocks import Block, Table
from assay.report.footnotes import footnotes
from assay.report.wording import columns, not_proven, status, texts, value_check


def comparison_report(comparison: Comparison) -> Iterator[Block]:
    """Yield the table, the sentences on each row, and the footnotes."""
    yield rows_table(comparison)
    for row in _rows(comparison):
        yield from (f"{row.treatment}: {sentence}" for sentence in _sentences(row))
    yield from footnotes(comparison)


def rows_table(comparison: Comparison) -> Table:
    """Return the table of all rows: the baseline, its second run, and the treatments, with all metrics."""
    shown = columns(comparison.run)
    titles = [metric.title for metric in shown]
    return Table.of(("", *titles), [_row(row, shown) for row in _rows(comparison)], titles)


def _rows(comparison: Comparison) -> tuple[Row, ...]:
    return (comparison.baseline, comparison.again, *comparison.rows)


def _row(row: Row, shown: list[Metric]) -> tuple[str, ...]:
    ending = status(row)
    return (f"{row.treatment} ({ending})" if ending else row.treatment, *(_cell(row, metric) for metric in shown))


def _cell(row: Row, metric: Metric) -> str:
    one = texts(row, metric)
    return " ".join(filter(None, (one.value, one.change, one.interval, one.remark)))


def _sentences(row: Row) -> Iterator[str]:
    if unproven := not_proven(row):
        yield f"not proven: {unproven}"
    yield from (f"{'proven' if one.verdict else 'NO EFFECT'}, {one.observed}" for one in row.evidence)
    if row.values is not None:
        yield value_check(row.values)
    yield from (f"caution, {flag}" for flag in row.flags)
