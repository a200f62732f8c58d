"""Exchange rates: the change of loss in percent for each percent of memory or time.

A rate is a quotient, so it exists only if its divisor can be told from zero. It is a price only if one of the two gets
better and the other worse. The other cases have names: both better, both worse, the same loss within the margin, no
change of loss shown. The range of a rate covers every pair of values of the two intervals.
"""

from enum import StrEnum
from typing import NamedTuple

from assay.analysis.choices.criteria import finished, memory_metric, time_change
from assay.analysis.choices.equivalence import LossVerdict, loss_difference
from assay.analysis.choices.log_change import LogChange, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics.loss import loss_of
from assay.analysis.row import Row
from assay.records.study import BASELINE


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
    for row in finished(comparison):
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
