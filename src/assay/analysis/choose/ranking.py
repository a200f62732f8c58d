"""Rows in an order: the Pareto front, exchange rates between criteria, weights, and published formulas.

A row is better in memory or time if the difference can be told from zero. It is better in loss if it is so by more than
the margin. Otherwise it is as good. Where there is no interval, figures decide, and a row is dominated *by its
figures*. Only rows of one context are compared.

A rate is a quotient, so it exists only if its divisor can be told from zero. It is a price only if one of the two gets
better and the other worse. The other cases have names: both better, both worse, the same loss within the margin, no
change of loss shown. The range of a rate covers every pair of values of the two intervals.

Walsh 2023 ("Deep Learning Systems Lab 1") ranks fifteen runs of nanoGPT by

    Rank = Accuracy − RuntimeMax / Runtime − MemoryMax / Memory.

Its accuracy is a loss, and its memory a number of allocations. The rows of its table stand in ascending order of this
figure, so the lowest one is the best.

A row's score is the weighted geometric mean of its improvements over the control. The improvement of a metric is the
control's figure over the row's, or its inverse if more is better. So figures of all units are ratios, and the control's
score is 1. The weights are divided by their sum.

A rank is a range if chance could change it. Its best end counts the rows that are shown to be better, and its worst end
leaves out those that are shown to be worse. Rows are ranked within their context, against its control.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import exp, isfinite, sqrt
from types import MappingProxyType
from typing import NamedTuple

from assay.analysis.choose.criteria import (
    Criterion,
    LogChange,
    LossVerdict,
    Name,
    contexts,
    criteria,
    finished_rows,
    log_change,
    loss_difference,
    memory_metric,
    time_change,
)
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import loss_of
from assay.analysis.row import Row, seeds_of
from assay.errors import UsageError, short_text, suggestion
from assay.records.study import BASELINE


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
    every, able = criteria(comparison), [row.treatment for row in finished_rows(comparison)]
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


class Trade(StrEnum):
    """Case of a change of loss together with a change of a resource."""

    WINS_BOTH = "better in both"
    COSTS_BOTH = "worse in both"
    SAVES_FOR_LOSS = "saves at a worse loss"
    COSTS_FOR_LOSS = "costs for a better loss"
    SAVES = "saves at the same loss"
    COSTS = "costs at the same loss"
    SAVES_PERHAPS = "saves, no change of loss shown"
    COSTS_PERHAPS = "costs, no change of loss shown"
    UNDEFINED = "undefined: its change cannot be told from zero"
    UNKNOWN = "not measured"

    @property
    def priced(self) -> bool:
        """True if one of the two gets better at the price of the other."""
        return self in (Trade.SAVES_FOR_LOSS, Trade.COSTS_FOR_LOSS)


class LossExchange(NamedTuple):
    """Exchange between the loss and one resource of a row."""

    trade: Trade
    resource: LogChange | None
    rate: float | None = None
    """Change of loss in percent for each percent of the resource, as an amount without a sign."""
    interval: tuple[float, float] | None = None
    """Range of the rate; None if there is no rate."""


class RowExchange(NamedTuple):
    """Exchanges of one row."""

    row: Row
    loss: LogChange | None
    memory: LossExchange
    time: LossExchange


def exchanges(comparison: Comparison) -> tuple[RowExchange, ...]:
    """Return the exchanges of every row that finished and has a change of loss."""
    found = []
    for row in finished_rows(comparison):
        loss = log_change(row, loss_of(comparison.run))
        if row.treatment != BASELINE and loss is not None:
            nats = loss_difference(comparison, row)
            same = nats is not None and nats.verdict in (LossVerdict.EQUAL, LossVerdict.SAME)
            memory, time = log_change(row, memory_metric(comparison)), time_change(comparison, row)
            found.append(RowExchange(row, loss, exchange(loss, memory, same=same), exchange(loss, time, same=same)))
    return tuple(found)


def exchange(loss: LogChange, resource: LogChange | None, *, same: bool = False) -> LossExchange:
    """Return the exchange of a change of loss and a change of a resource; `same` if the loss is within the margin."""
    if resource is None:
        return LossExchange(Trade.UNKNOWN, None)
    trade = _trade(None if same else loss.sign, resource.sign)
    if not trade.priced:
        return LossExchange(trade, resource)
    losses = loss.interval or (loss.fraction, loss.fraction)
    resources = resource.interval or (resource.fraction, resource.fraction)
    rates = [abs(one / other) for one in losses for other in resources]
    return LossExchange(trade, resource, abs(loss.fraction / resource.fraction), (min(rates), max(rates)))


def _trade(loss: int | None, resource: int) -> Trade:
    """Return the case of two signs, which are 0 where a change cannot be told from zero; None is the same loss."""
    if resource == 0:
        return Trade.UNDEFINED
    if loss is None:
        return Trade.SAVES if resource < 0 else Trade.COSTS
    if loss == 0:
        return Trade.SAVES_PERHAPS if resource < 0 else Trade.COSTS_PERHAPS
    if loss == resource:
        return Trade.WINS_BOTH if loss < 0 else Trade.COSTS_BOTH
    return Trade.SAVES_FOR_LOSS if resource < 0 else Trade.COSTS_FOR_LOSS


class Measured(NamedTuple):
    """Figures of one row that formulas use."""

    loss: float
    seconds: float
    memory: float


class Formula(NamedTuple):
    """A published formula."""

    source: str
    text: str
    flaw: str
    """Sentences on what is wrong with it."""
    scores: Callable[[Mapping[str, Measured]], dict[str, float]]
    """Return the figure of each row; the lowest is the best."""


class FormulaRanking(NamedTuple):
    """Rows in the order of a formula."""

    formula: Formula
    scores: tuple[tuple[str, float], ...]
    """Rows with their figures, the best first; rows of equal figures by name."""


def walsh_2023(rows: Mapping[str, Measured]) -> dict[str, float]:
    """Return loss − longest time / time − largest memory / memory of each row."""
    longest, largest = max(one.seconds for one in rows.values()), max(one.memory for one in rows.values())
    return {name: one.loss - longest / one.seconds - largest / one.memory for name, one in rows.items()}


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "walsh-2023": Formula(
            "Walsh, Deep Learning Systems Lab 1, 2023, equation 1",
            "Rank = loss − longest time / time − largest memory / memory; the lowest is the best",
            "The formula takes ratios away from a loss in nats, so its units do not match. Losses of useful rows lie "
            "within a few tenths, and the ratios grow without bound, so a fast row wins at almost any loss. The "
            "ratios are to the worst row: adding or removing a slow row changes the order of the others. Chance is "
            "not considered.",
            walsh_2023,
        )
    }
)
"""Published formulas by the name that a study's field `ranking` gives."""


def formula_ranking(comparison: Comparison) -> FormulaRanking | None:
    """Return the ranking by the formula that the study names; None without one, or if a figure is missing."""
    formula = FORMULAS.get(comparison.record.ranking or "")
    rows = _measured(comparison) if formula else {}
    if formula is None or not rows:
        return None
    return FormulaRanking(formula, tuple(sorted(formula.scores(rows).items(), key=lambda one: (one[1], one[0]))))


def _measured(comparison: Comparison) -> dict[str, Measured]:
    """Figures of the rows that finished at every seed of the control's; empty if one of the three was not measured.

    The formulas compare losses themselves, which differ between seeds.
    """
    every: dict[str, Criterion] = {one.name: one for one in criteria(comparison, varying=False)}
    if not {"loss", "time", "memory"} <= every.keys():
        return {}
    loss, time, memory = (every[name].figures for name in ("loss", "time", "memory"))
    seeds = {name: seeds_of(comparison.record.of(name)) for name in loss}
    alike = (name for name in loss if seeds[name] == seeds.get(BASELINE))
    return {name: Measured(loss[name], time[name], memory[name]) for name in alike}


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
    scores = {row.treatment: score for row in finished_rows(comparison) if (score := _score(row, weights)) is not None}
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
