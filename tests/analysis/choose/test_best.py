"""The best row of a study as the base of a later one."""

import pytest

from assay.analysis.choose.best import Best, best_row
from assay.analysis.comparison import analyse
from assay.config import Run
from assay.records.study import CellResult, ComparisonRecord
from support.comparisons import record
from support.swept import in_two_sizes


def changed(made: ComparisonRecord, **fields: object) -> ComparisonRecord:
    """The record of a study whose cells have other fields of their configuration."""

    def other(one: CellResult) -> CellResult:
        return one.model_copy(
            update={"cell": one.cell.model_copy(update={"run": one.cell.run.model_copy(update=fields)})}
        )

    return made.model_copy(update={"cells": tuple(map(other, made.cells))})


def best(made: ComparisonRecord) -> Best:
    return best_row(analyse(made), "tensors_peak_bytes")


def on(run: Run, split: str) -> Run:
    """The run with losses of another split."""
    return run.model_copy(update={"data": run.data.model_copy(update={"evaluate_on": split})})


def test_threads_are_those_of_the_study_and_not_of_cells_beside_each_other() -> None:
    made = changed(record(), threads=1)
    for threads in (None, 2):
        asked = made.model_copy(update={"base": made.base.model_copy(update={"threads": threads})})
        assert best(asked).run.threads == threads


def test_seeds_begin_after_those_of_the_study() -> None:
    found = best(record(seeds=3))
    assert found.run.seed == 3
    assert "Seeds begin at 3" in found.sentence


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ("test", "losses here are those of the test split."),
        ("validation", "losses here have no text of their own."),
        ("held-out", "losses here have no text of their own."),
    ],
)
def test_it_is_said_whether_losses_are_of_another_text(split: str, says: str) -> None:
    made = record()
    chosen = best(changed(made, data=on(made.cells[0].cell.run, "validation").data))
    assert chosen.run.data.evaluate_on == "test"
    assert chosen.told(on(chosen.run, split)).endswith(says)


def test_nothing_is_said_of_texts_where_no_split_was_chosen_by() -> None:
    found = best(record())
    assert found.told(found.run) == found.sentence


def test_a_row_of_another_context_is_no_start() -> None:
    assert best(in_two_sizes()).row == "shape=large, optimizations=sdpa_attention"
