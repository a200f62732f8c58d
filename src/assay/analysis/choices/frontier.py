"""Pareto front: the rows than which no other is better in one criterion and at least as good in all others.

A row is better in memory or time if the difference can be told from zero. It is better in loss if it is so by more than
the margin. Otherwise it is as good. Where there is no interval, figures decide, and a row is dominated *by its
figures*. Only rows of one context are compared.
"""

from typing import NamedTuple

from assay.analysis.choices.contexts import contexts
from assay.analysis.choices.criteria import Criterion, Name, criteria, finished
from assay.analysis.comparison import Comparison
from assay.analysis.row import Row


class Standing(NamedTuple):
    """Place of one row relative to the front."""

    row: Row
    figures: dict[Name, float]
    """Figures by criterion; empty if the row did not finish."""
    dominated_by: tuple[str, ...] = ()
    """Rows that dominate it; those of the front if there are any."""
    sure: bool = True
    """True if intervals decided all comparisons with one of `dominated_by`."""

    @property
    def on_front(self) -> bool:
        """True if the row finished and no other dominates it."""
        return bool(self.figures) and not self.dominated_by


class CriteriaFront(NamedTuple):
    """Criteria that count, and every row."""

    criteria: tuple[Criterion, ...]
    rows: tuple[Standing, ...]
    """The control first, then the rows in the order of the record, with those that did not finish."""


def frontier(comparison: Comparison) -> CriteriaFront:
    """Return the front of each context over all criteria in which the rows differ."""
    every, able = criteria(comparison), [row.treatment for row in finished(comparison)]
    alike = {name: one.rows for one in contexts(comparison) for name in one.rows}
    above = {name: _dominating(name, [one for one in able if one in alike.get(name, ())], every) for name in able}
    found = []
    for row in (comparison.baseline, *comparison.rows):
        if row.treatment not in above or not every:
            found.append(Standing(row, {}))
            continue
        over = above[row.treatment]
        front = {name: sure for name, sure in over.items() if not above[name]} or over
        figures = {one.name: one.figures[row.treatment] for one in every}
        found.append(Standing(row, figures, tuple(front), any(front.values()) or not front))
    return CriteriaFront(every, tuple(found))


def _dominating(name: str, others: list[str], every: tuple[Criterion, ...]) -> dict[str, bool]:
    """Rows that dominate a row, and whether intervals decided each comparison."""
    found = {}
    for other in others:
        orders = [one.order(other, name) for one in every] if other != name else []
        if any(sign < 0 for sign, _ in orders) and all(sign <= 0 for sign, _ in orders):
            found[other] = all(sure for _, sure in orders)
    return found
