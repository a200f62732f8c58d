"""Ranking of rows by weighted criteria, and by published formulas.

A row's score is the weighted geometric mean of its improvements over the control. The improvement of a metric is the
control's figure over the row's, or its inverse if more is better. So figures of all units are ratios, and the control's
score is 1. The weights are divided by their sum.

A rank is a range if chance could change it. Its best end counts the rows that are shown to be better, and its worst end
leaves out those that are shown to be worse. Rows are ranked within their context, against its control.
"""

from collections.abc import Mapping, Sequence
from math import exp, isfinite, sqrt
from typing import NamedTuple

from assay.analysis.choices.contexts import contexts
from assay.analysis.choices.criteria import finished
from assay.analysis.choices.formulas import FORMULAS
from assay.analysis.choices.log_change import LogChange, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.errors import UsageError, short_text, suggestion


class Ranked(NamedTuple):
    """One row with its score and rank."""

    row: Row
    score: float
    interval: tuple[float, float] | None
    """Interval of the score; None if a metric has none."""
    best: int
    """Rank if all differences that cannot be told were in its favour."""
    worst: int


class RowRanking(NamedTuple):
    """Ranked rows, context by context and best first, and the rows that lack a figure."""

    weights: Mapping[str, float]
    """Weights by metric; they sum to 1."""
    rows: tuple[Ranked, ...]
    unranked: tuple[str, ...]


def ranking(comparison: Comparison) -> RowRanking | None:
    """Return the ranking by the study's weights; None if it states none."""
    stated = {name: weight for name, weight in comparison.record.weights.items() if weight}
    if not stated:
        return None
    weights = {name: weight / sum(stated.values()) for name, weight in sorted(stated.items())}
    scores = {row.treatment: score for row in finished(comparison) if (score := _score(row, weights)) is not None}
    known = {row.treatment: row for row in (comparison.baseline, *comparison.rows)}
    ranked = []
    for context in contexts(comparison):
        alike = {name: score for name, score in scores.items() if name in context.rows and context.control in scores}
        rows = [
            _ranked(known[name], score, scores[context.control], [*alike.values()]) for name, score in alike.items()
        ]
        ranked += sorted(rows, key=lambda one: (-one.score, one.row.treatment))
    placed = {one.row.treatment for one in ranked}
    return RowRanking(weights, tuple(ranked), tuple(name for name in known if name not in placed))


def check_ranking(weights: Mapping[str, float], formula: str | None) -> None:
    """Raise `UsageError` for a weight of no metric or that is no weight, and for an unknown formula."""
    known = metrics()
    for name, weight in weights.items():
        if name not in known:
            hint = suggestion(name, list(known)) or f"; there are {', '.join(known)}"
            raise UsageError(f"weights names the metric {short_text(name)}, which does not exist{hint}")
        if not isfinite(weight) or weight < 0:
            raise UsageError(f"weights gives {name} the weight {weight}; a weight is a number from 0 on")
    if weights and not any(weights.values()):
        raise UsageError("weights gives every metric the weight 0; give one of them more")
    if formula is not None and formula not in FORMULAS:
        hint = suggestion(formula, list(FORMULAS)) or f"; there are {', '.join(FORMULAS)}"
        raise UsageError(f"ranking names the formula {short_text(formula)}, which does not exist{hint}")


def _score(row: Row, weights: Mapping[str, float]) -> LogChange | None:
    """Logarithm of a row's score; None if a metric has no change. Its metrics are taken as independent."""
    known, total, squares, told = metrics(), 0.0, 0.0, True
    for name, weight in weights.items():
        change = log_change(row, known[name]) if name in known else None
        if change is None:
            return None
        total += weight * change.log * (-1 if known[name].better == "lower" else 1)
        squares += (weight * (change.half or 0.0)) ** 2
        told = told and change.half is not None
    return LogChange(total, sqrt(squares) if told else None)


def _ranked(row: Row, own: LogChange, control: LogChange, every: Sequence[LogChange]) -> Ranked:
    """Return a row among those of its context, with its score against the control there."""
    signs = [other.since(own).sign for other in every]
    score = LogChange(0.0, 0.0) if own is control else own.since(control)
    low_high = None if score.half is None else (exp(score.log - score.half), exp(score.log + score.half))
    return Ranked(row, exp(score.log), low_high, 1 + signs.count(1), len(every) - signs.count(-1))
