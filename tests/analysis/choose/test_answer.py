import random

import pytest

from assay.analysis.choose.answer import StudyAnswer, answers
from assay.analysis.comparison import analyse
from assay.records.status import Status
from assay.records.study import ComparisonRecord, StudyEnding
from support.comparisons import FACTORS, TREATMENTS, record
from support.swept import cut_short, factorial_record, in_two_sizes


def answered(whole: ComparisonRecord) -> StudyAnswer:
    (found,) = answers(analyse(whole))
    return found


def test_the_fastest_and_the_lightest_row_at_no_worse_loss_are_chosen() -> None:
    found = answered(record(seeds=3))
    assert found.fastest is not None
    assert found.lightest is not None
    assert found.fastest.row.treatment == "sdpa_attention"
    assert found.lightest.row.treatment == "gradient_accumulation:micro_batches=4"
    assert (found.worse, found.unsure, found.lowest) == ((), (), None)


def test_a_faster_row_with_a_worse_loss_is_named_and_not_chosen() -> None:
    whole = factorial_record(
        {"optimizations": ["none", "lion"]}, lambda levels: (1, 0.5, 2.5) if "lion" in levels.values() else (1, 1, 2.4)
    )
    found = answered(whole)
    assert found.fastest is None
    assert [one.row.treatment for one in found.worse] == ["lion"]


def test_with_one_seed_a_row_whose_loss_differs_is_unsure() -> None:
    found = answered(record(seeds=1, processes=3))
    assert [one.row.treatment for one in found.unsure] == [TREATMENTS[0], TREATMENTS[4], TREATMENTS[3], TREATMENTS[1]]
    assert found.lightest is not None
    assert found.lightest.row.treatment == "activation_checkpointing"


def test_the_lowest_loss_is_named_if_it_is_better_by_more_than_the_margin() -> None:
    whole = factorial_record(
        {"model.n_layer": [2, 4]}, lambda levels: (1, 1, 2.4) if "2" in levels.values() else (2, 2, 2.2)
    )
    found = answered(whole)
    assert found.lowest is not None
    assert found.lowest.row.treatment == "model.n_layer=4"


def test_rows_that_are_as_fast_as_can_be_told_are_rivals() -> None:
    factors = {**FACTORS, TREATMENTS[2]: (0.55, 0.66, 0.88, 0.0)}
    found = answered(record(seeds=3, factors=factors, between=0.01))
    assert found.fastest is not None
    assert {found.fastest.row.treatment, *found.rivals} == {TREATMENTS[0], TREATMENTS[2]}


def test_nothing_is_answered_if_no_row_finished() -> None:
    lost = {TREATMENTS[0]: {"status": Status.FAILED, "reason": "lost"}}
    assert answers(analyse(record(treatments=TREATMENTS[:1], changes=lost))) == ()


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_cells_does_not_matter(seed: int) -> None:
    whole = record(seeds=3, target_loss=3.0)
    cells = list(whole.cells)
    random.Random(seed).shuffle(cells)
    one, other = answered(whole), answered(whole.model_copy(update={"cells": tuple(cells)}))
    for name in ("fastest", "lightest", "first"):
        assert getattr(one, name).row.treatment == getattr(other, name).row.treatment


def test_a_row_of_which_a_limit_of_time_held_processes_back_can_be_chosen() -> None:
    sdpa, bf16, _, accumulation, stack = TREATMENTS
    whole = cut_short(record(seeds=3), (sdpa, 0), (sdpa, 1), (sdpa, 2), ("activation_checkpointing", 0))
    found = answered(whole)
    assert found.fastest is not None
    assert found.lightest is not None
    assert (found.fastest.row.treatment, found.fastest.row.finished) == (sdpa, 3)
    assert (found.lightest.row.treatment, found.lightest.row.finished) == ("activation_checkpointing", 1)
    statuses = {row.treatment: (row.status, row.reason) for row in analyse(whole).rows}
    assert statuses[sdpa] == (Status.DONE, None)
    assert statuses["activation_checkpointing"] == (Status.BUDGET_REACHED, "the limit of time ended the study")
    assert {statuses[one] for one in (bf16, accumulation, stack)} == {(Status.INTERRUPTED, "no process ran")}


def test_a_study_that_a_person_stopped_chooses_no_row_that_lacks_processes() -> None:
    """Whoever stops a study may have looked at its figures."""
    whole = cut_short(record(seeds=3), (TREATMENTS[0], 0), (TREATMENTS[0], 1))
    assert len(answers(analyse(whole))) == 1
    assert answers(analyse(whole.model_copy(update={"ending": StudyEnding.INTERRUPTED}))) == ()


def test_a_factor_that_is_context_is_no_choice_and_splits_the_answer() -> None:
    """The small model is the lightest and the fastest row of all, and no answer."""
    whole = in_two_sizes()
    assert whole.context == ("shape",)
    large, small = answers(analyse(whole))
    assert (large.context.name, small.context.name) == ("large", "small")
    for one in (large, small):
        assert one.lightest is not None
        assert one.fastest is not None
        assert one.lightest.row.treatment == f"shape={one.context.levels[0][1]}, optimizations=sdpa_attention"
        assert one.fastest.row.treatment == f"shape={one.context.levels[0][1]}, optimizations=bf16_mixed"
        assert one.lightest.memory is not None
        assert one.lightest.memory.fraction == pytest.approx(-0.2, abs=0.001)
    (without,) = answers(analyse(whole.model_copy(update={"context": ()})))
    assert without.lightest is not None
    assert without.lightest.row.treatment.startswith("shape=small")
