import random
from math import prod

import pytest

from assay.analysis.choices.formulas import FORMULAS, Measured, formula_ranking
from assay.analysis.choices.ranking import check_ranking, ranking
from assay.analysis.comparison import analyse
from assay.errors import UsageError
from assay.records.published import PublishedStudy
from assay.studies.documents import with_published
from support.comparisons import TREATMENTS, record
from support.swept import cut_short, in_two_sizes

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
