import pytest

from assay.analysis.choices.exchange import Trade, exchange, exchanges
from assay.analysis.choices.log_change import LogChange
from assay.analysis.comparison import analyse
from support.comparisons import record
from support.swept import factorial_record

WORSE, BETTER, NONE = LogChange(0.02, 0.01), LogChange(-0.02, 0.01), LogChange(0.002, 0.01)


@pytest.mark.parametrize(
    ("loss", "resource", "trade"),
    [
        (WORSE, LogChange(-0.5, 0.1), Trade.SAVES_FOR_LOSS),
        (BETTER, LogChange(0.5, 0.1), Trade.COSTS_FOR_LOSS),
        (BETTER, LogChange(-0.5, 0.1), Trade.WINS_BOTH),
        (WORSE, LogChange(0.5, 0.1), Trade.COSTS_BOTH),
        (NONE, LogChange(-0.5, 0.1), Trade.SAVES_PERHAPS),
        (NONE, LogChange(0.5, 0.1), Trade.COSTS_PERHAPS),
        (WORSE, LogChange(0.001, 0.1), Trade.UNDEFINED),
        (WORSE, LogChange(-0.5, None), Trade.UNDEFINED),
        (WORSE, LogChange(0.0, 0.0), Trade.UNDEFINED),
        (WORSE, None, Trade.UNKNOWN),
    ],
)
def test_each_pair_of_signs_has_its_case_and_only_a_trade_has_a_rate(
    loss: LogChange, resource: LogChange | None, trade: Trade
) -> None:
    found = exchange(loss, resource)
    assert found.trade is trade
    assert (found.rate is not None) == trade.priced


def test_a_rate_is_the_quotient_of_the_changes_and_its_range_covers_both_intervals() -> None:
    whole = factorial_record(
        {"optimizations": ["none", "lion"]}, lambda levels: (0.5, 1, 2.5) if "lion" in levels.values() else (1, 1, 2.4)
    )
    (one,) = exchanges(analyse(whole))
    assert one.loss is not None
    assert one.memory.rate == pytest.approx(one.loss.fraction / 0.5, rel=1e-6)
    assert one.memory.rate is not None
    assert one.memory.interval is not None
    assert one.memory.interval[0] < one.memory.rate < one.memory.interval[1]
    assert one.memory.interval == pytest.approx([end / 0.5 for end in one.loss.interval or ()], rel=1e-6)


def test_a_loss_within_the_margin_has_no_price() -> None:
    trades = {one.row.treatment: one.memory.trade for one in exchanges(analyse(record(seeds=3)))}
    assert set(trades.values()) == {Trade.SAVES}
