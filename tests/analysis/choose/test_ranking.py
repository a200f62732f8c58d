"""Orders of rows: the Pareto front, exchange rates, weights and published formulas."""

import random
from collections.abc import Mapping
from math import prod

import pytest

from assay.analysis.choose.criteria import LogChange
from assay.analysis.choose.ranking import (
    FORMULAS,
    Measured,
    Standing,
    Trade,
    check_ranking,
    exchange,
    exchanges,
    formula_ranking,
    frontier,
    ranking,
)
from assay.analysis.comparison import analyse
from assay.errors import UsageError
from assay.records.published import PublishedStudy
from assay.records.status import Status
from assay.records.study import CellResult, ComparisonRecord
from assay.studies.documents import with_published
from support.comparisons import TREATMENTS, record
from support.swept import cut_short, factorial_record, in_two_sizes

LEVELS = (0.1, 0.01, 0.02, 0.03, 0.04, 0.05)


def by_name(whole: ComparisonRecord) -> dict[str, Standing]:
    return {one.row.treatment: one for one in frontier(analyse(whole)).rows}


@pytest.mark.parametrize("draw", range(10))
def test_the_front_is_that_of_a_slow_reference_where_all_differences_are_clear(draw: int) -> None:
    rng = random.Random(draw)
    figures = {level: tuple(rng.choice((1, 1.5, 2, 3)) for _ in range(3)) for level in LEVELS}

    def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
        memory, step, loss = figures[float(levels["training.weight_decay"])]
        return memory, step, loss

    whole = factorial_record({"training.weight_decay": list(LEVELS)}, of, noise=0.0)
    found = frontier(analyse(whole))
    levels = {
        one.cell.treatment: of(one.cell.levels) for one in whole.cells if one.cell.treatment != "baseline (again)"
    }
    for one in found.rows:
        own = levels[one.row.treatment]
        over = {
            name
            for name, other in levels.items()
            if other != own and all(a <= b for a, b in zip(other, own, strict=True))
        }
        assert one.on_front == (not over)
        assert set(one.dominated_by) <= over


def test_rows_that_did_not_finish_are_listed_and_dominate_nothing() -> None:
    lost = {TREATMENTS[2]: {"status": Status.OUT_OF_MEMORY, "reason": "out of memory"}}
    found = by_name(record(seeds=3, changes=lost))
    assert found[TREATMENTS[2]].figures == {}
    assert not found[TREATMENTS[2]].on_front
    assert all(TREATMENTS[2] not in one.dominated_by for one in found.values())


def test_a_difference_without_an_interval_dominates_by_its_figures_only() -> None:
    (baseline, other) = frontier(analyse(record(seeds=1, processes=3, treatments=(TREATMENTS[4],)))).rows
    assert baseline.dominated_by == (TREATMENTS[4],)
    assert not baseline.sure
    assert other.on_front


def test_cells_in_another_order_give_the_same_front() -> None:
    whole = record(seeds=3)
    cells: list[CellResult] = list(whole.cells)
    random.Random(0).shuffle(cells)
    mixed = by_name(whole.model_copy(update={"cells": tuple(cells)}))
    for name, one in by_name(whole).items():
        assert mixed[name].dominated_by == one.dominated_by
        assert mixed[name].figures == pytest.approx(one.figures)


def test_rows_of_another_context_dominate_nothing() -> None:
    found = by_name(in_two_sizes())
    front = {name for name, one in found.items() if one.on_front}
    both = ("optimizations=sdpa_attention", "optimizations=bf16_mixed")
    assert front == {f"shape={size}, {one}" for size in ("large", "small") for one in both}
    assert found["baseline"].dominated_by == ("shape=large, optimizations=bf16_mixed",)
    (control,) = (one for name, one in found.items() if name == "shape=small, optimizations=none")
    assert control.dominated_by == ("shape=small, optimizations=bf16_mixed",)


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


WEIGHTS = {"step_seconds": 2.0, "tensors_peak_bytes": 1.0, "tokens_per_second": 1.0}


def test_the_formula_of_walsh_in_ascending_order_reproduces_its_table() -> None:
    table = PublishedStudy.model_validate(with_published({"library": "walsh-2023"}))
    measured = {}
    for row in table.rows:
        memory, seconds, loss = (figure or 0.0 for figure in row.figures)
        measured[row.name] = Measured(loss, seconds, memory)
    assert len(measured) == 15
    scores = FORMULAS["walsh-2023"].scores(measured)
    assert sorted(scores, key=lambda name: scores[name]) == list(measured)
    assert scores["Stochastic Gradient Descent (Heads)"] == pytest.approx(1.7 - 321.56 / 93.58 - 50384042 / 28616229)


def test_the_flaw_is_real_a_slow_row_reorders_the_others() -> None:
    formula = FORMULAS["walsh-2023"].scores
    rows = {"good": Measured(1.5, 100, 1), "fast": Measured(2.1, 80, 1)}
    slow = formula({**rows, "slow": Measured(2, 1000, 1)})
    assert formula(rows)["good"] < formula(rows)["fast"]
    assert slow["good"] > slow["fast"]


def test_a_score_is_the_weighted_geometric_mean_of_improvements() -> None:
    comparison = analyse(record(seeds=3, weights=WEIGHTS))
    found = ranking(comparison)
    assert found is not None
    assert sum(found.weights.values()) == pytest.approx(1)
    for one in found.rows:
        ratios = {name: effect.change + 1 for name, effect in one.row.effects.items()}
        improved = [
            ratios.get("step_seconds", 1) ** -0.5,
            ratios.get("tensors_peak_bytes", 1) ** -0.25,
            ratios.get("tokens_per_second", 1) ** 0.25,
        ]
        assert one.score == pytest.approx(prod(improved))


def test_ranks_agree_with_scores_and_rows_that_cannot_be_told_apart_share_them() -> None:
    found = ranking(analyse(record(seeds=3, weights={"step_seconds": 1.0}, noise=0.05, between=0.02)))
    assert found is not None
    assert [one.score for one in found.rows] == sorted((one.score for one in found.rows), reverse=True)
    ranks = {one.row.treatment: (one.best, one.worst) for one in found.rows}
    assert ranks["bf16_mixed"] == (6, 6)
    assert ranks["baseline"][0] < ranks["baseline"][1]
    assert all(best <= place <= worst for place, (best, worst) in enumerate(ranks.values(), 1))


def test_without_intervals_all_rows_share_all_ranks() -> None:
    found = ranking(analyse(record(seeds=1, weights={"val_loss": 1.0}, treatments=TREATMENTS[:2])))
    assert found is not None
    assert [(one.best, one.worst) for one in found.rows] == [(1, 3)] * 3


def test_a_row_without_a_figure_is_named_and_no_weights_give_no_ranking() -> None:
    lost = {TREATMENTS[0]: {"val_loss": None}}
    found = ranking(analyse(record(seeds=3, weights={"val_loss": 1.0}, changes=lost)))
    assert found is not None
    assert found.unranked == (TREATMENTS[0],)
    assert ranking(analyse(record())) is None


def test_the_order_of_cells_does_not_matter() -> None:
    whole = record(seeds=3, weights=WEIGHTS, ranking="walsh-2023")
    cells = list(whole.cells)
    random.Random(1).shuffle(cells)
    one, other = (analyse(each) for each in (whole, whole.model_copy(update={"cells": tuple(cells)})))
    first, second = ranking(one), ranking(other)
    assert first is not None
    assert second is not None
    assert [each.row.treatment for each in first.rows] == [each.row.treatment for each in second.rows]
    assert formula_ranking(one) is not None
    assert [name for name, _ in (formula_ranking(one) or ((), ()))[1]] == [
        name for name, _ in (formula_ranking(other) or ((), ()))[1]
    ]


@pytest.mark.parametrize(
    ("weights", "formula", "says"),
    [
        ({"step_secnds": 1.0}, None, "did you mean 'step_seconds'"),
        ({"step_seconds": -1.0}, None, "a weight is a number from 0 on"),
        ({"step_seconds": float("nan")}, None, "a weight is a number from 0 on"),
        ({"step_seconds": 0.0}, None, "give one of them more"),
        ({}, "walsh-2032", "did you mean 'walsh-2023'"),
    ],
)
def test_a_fault_in_the_ranking_is_a_sentence(weights: dict[str, float], formula: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_ranking(weights, formula)


def test_a_formula_ranks_only_rows_that_ran_at_the_seeds_of_the_control() -> None:
    whole = record(seeds=2, ranking="walsh-2023")
    found = formula_ranking(analyse(cut_short(whole, (TREATMENTS[0], 0), (TREATMENTS[0], 1), (TREATMENTS[1], 0))))
    assert found is not None
    assert {name for name, _ in found.scores} == {"baseline", TREATMENTS[0]}


def test_rows_are_ranked_within_their_context_against_its_control() -> None:
    found = ranking(analyse(in_two_sizes(weights={"tensors_peak_bytes": 1.0})))
    assert found is not None
    ranks = {one.row.treatment: (one.best, one.worst) for one in found.rows}
    scores = {one.row.treatment: one.score for one in found.rows}
    assert ranks["shape=large, optimizations=sdpa_attention"] == (1, 1)
    assert ranks["shape=small, optimizations=sdpa_attention"] == (1, 1)
    assert scores["shape=small, optimizations=sdpa_attention"] == pytest.approx(1 / 0.8, abs=0.002)
    assert scores["shape=small, optimizations=none"] == scores["baseline"] == 1
