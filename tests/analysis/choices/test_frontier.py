import random
from collections.abc import Mapping

import pytest

from assay.analysis.choices.frontier import Standing, frontier
from assay.analysis.comparison import analyse
from assay.records.status import Status
from assay.records.study import CellResult, ComparisonRecord
from support.comparisons import TREATMENTS, record
from support.swept import factorial_record, in_two_sizes

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
