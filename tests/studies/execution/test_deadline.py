"""Limits of time with planted durations: a clock that the cells of a wave move on, and the pace of waves."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from assay.config import load
from assay.errors import UsageError
from assay.executors.base import Ended, Wave
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import Cell
from assay.studies.execution.deadline import START_SECONDS, Deadline, Pace, process_seconds
from support.designs import design

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=2)
FIRST, SECOND = CELLS[:4], CELLS[4:]


def ended(cell: Cell, wave: int, status: Status = Status.DONE) -> Ended:
    result: RunResult | Any = SimpleNamespace(status=status)
    return Ended(cell, result, wave)


def after(predicted: dict[str, float], took: float, status: Status = Status.DONE) -> Pace:
    now = [100.0]
    pace = Pace(lambda cell: predicted.get(cell.treatment), lambda: now[0])
    pace.begin(0, FIRST)
    now[0] += took
    for cell in FIRST:
        pace.hear(ended(cell, 0, status))
    return pace


TOLD = {cell.treatment: 10.0 for cell in CELLS}


def test_every_evaluation_takes_a_third_of_a_step_for_each_of_its_batches() -> None:
    training = {"steps": 60, "eval_interval": 20, "eval_batches": None}
    run = CELLS[0].run.model_copy(update={"training": CELLS[0].run.training.model_copy(update=training)})
    assert process_seconds(run, 0.5, 0) == START_SECONDS + 0.5 * 60
    assert process_seconds(run, 0.5, 150) == START_SECONDS + 0.5 * (60 + 4 * 150 / 3)


def test_predictions_hold_until_a_wave_has_ended() -> None:
    pace = Pace(lambda cell: TOLD[cell.treatment], lambda: 0.0)
    pace.begin(0, FIRST)
    pace.hear(ended(FIRST[0], 0))
    assert pace.seconds(SECOND) == 40


def test_predictions_are_corrected_by_what_finished_waves_took() -> None:
    slow = {**TOLD, "sdpa_attention": 70.0}  # 100 seconds in all
    assert after(slow, 150).seconds(SECOND[:2]) == 30
    assert after(slow, 150).seconds([SECOND[2]]) == 105


def test_a_wave_with_a_failure_corrects_nothing() -> None:
    assert after(TOLD, 2, Status.OUT_OF_MEMORY).seconds(SECOND) == 40


def test_without_predictions_the_mean_of_finished_cells_counts() -> None:
    assert Pace(lambda cell: None, lambda: 0.0).seconds(SECOND) is None
    assert after({}, 60).seconds(SECOND[:3]) == 45
    assert after({**TOLD, "bf16_mixed": 0.0} | {"sdpa_attention": 10.0}, 60).seconds(SECOND[:1]) == 20


def test_cells_of_waves_that_began_elsewhere_say_nothing() -> None:
    pace = Pace(lambda cell: None, lambda: 0.0)
    pace.hear(ended(FIRST[0], 7))
    assert pace.seconds(SECOND) is None


OF_THREE_SEEDS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=3)
SINGLE = [(number, (cell,)) for number, cell in enumerate(OF_THREE_SEEDS)]
SEEDS = [(number, OF_THREE_SEEDS[4 * number : 4 * number + 4]) for number in range(3)]
ONE_WAVE = [(0, design(load("demo"), ["sdpa_attention", "bf16_mixed", "lion", "muon"], seeds=1))]

Begun = dict[int, list[str]]


def run(
    waves: Sequence[tuple[int, Wave]],
    seconds: float | None,
    *,
    takes: float = 10,
    predicted: float | None = None,
    **options: Any,
) -> tuple[Begun, Deadline]:
    """Let each cell take some seconds; returns the cells that began by wave."""
    now = [100.0]
    hours = None if seconds is None else seconds / 3600
    deadline = Deadline(hours, lambda cell: predicted, clock=lambda: now[0], **options)
    begun: Begun = {}
    for number, wave in deadline.before(waves):
        begun[number] = [cell.treatment for cell in wave]
        now[0] += takes * len(wave)
        for cell in wave:
            result: Any = SimpleNamespace(status=Status.DONE)
            deadline.hear(Ended(cell, result, number))
    return begun, deadline


@pytest.mark.parametrize(
    ("seconds", "cells"),
    [
        (None, 12),
        (1, 1),  # the time of the first is not known
        (59, 5),  # a sixth would end after 60 seconds
        (60, 6),
        (1000, 12),
    ],
)
def test_no_cell_begins_that_would_probably_end_too_late(seconds: float | None, cells: int) -> None:
    begun, deadline = run(SINGLE, seconds)
    assert list(begun) == list(range(cells))
    assert deadline.reached == (cells < 12)


@pytest.mark.parametrize(
    ("waves", "seconds", "predicted", "beside", "expected"),
    [
        (SEEDS, None, 10, 1, 120),
        (SINGLE, None, 10, 5, 30),  # twelve cells, five at once, take three turns
        (SEEDS, 90, 10, 1, 90),
        (SEEDS, None, None, 1, None),
        ([], None, 10, 1, None),
    ],
)
def test_the_expected_time_is_that_of_all_cells_and_at_most_the_limit(
    waves: Sequence[tuple[int, Wave]], seconds: float | None, predicted: float | None, beside: int, expected: float
) -> None:
    hours = None if seconds is None else seconds / 3600
    assert Deadline(hours, lambda cell: predicted, beside=beside).expected(waves) == expected


def test_a_study_of_one_wave_is_ended_at_the_border_of_a_cell() -> None:
    begun, deadline = run(ONE_WAVE, 45, predicted=10)
    assert begun == {0: ["baseline", "baseline (again)", "sdpa_attention", "bf16_mixed"]}
    assert [cell.treatment for cell in deadline.cut] == ["lion", "muon"]
    assert deadline.reached


def test_predictions_are_corrected_before_a_later_wave_is_cut() -> None:
    """Predicted: 40 + 40 seconds, so that three seeds fit in 120. They take twice as long."""
    begun, deadline = run(SEEDS, 120, predicted=10, takes=20)
    assert begun == {0: [cell.treatment for cell in OF_THREE_SEEDS[:4]]}, "in 40 seconds two controls fit, and no row"
    assert (deadline.reached, deadline.cut) == (True, ())
    begun, _ = run(SEEDS, 140, predicted=10, takes=20)
    assert begun[1] == ["baseline", "baseline (again)", "sdpa_attention"]
    assert 2 not in begun


def test_a_study_that_fits_exactly_is_whole() -> None:
    begun, deadline = run(SEEDS, 120, predicted=10)
    assert [len(names) for names in begun.values()] == [4, 4, 4]
    assert (deadline.reached, deadline.cut) == (False, ())


def test_a_limit_that_passes_while_it_is_looked_at_begins_nothing() -> None:
    ticks = iter(range(1000))
    cells = len(ONE_WAVE[0][1]) - 3  # the control, its copy and one row
    deadline = Deadline((10 * cells + 1.5) / 3600, lambda cell: 10.0, clock=lambda: float(next(ticks)))
    assert list(deadline.before(ONE_WAVE)) == []
    assert deadline.reached


def test_a_fraction_is_whole_for_each_seed() -> None:
    halves = [(number, OF_THREE_SEEDS[2 * number : 2 * number + 2]) for number in range(6)]  # memory holds two cells
    begun, deadline = run(halves, 70, predicted=10, whole=True)
    assert list(begun) == [0, 1], "seed 1 would need 40 of the 30 seconds left"
    assert deadline.reached
    begun, _ = run(SEEDS, 70, predicted=10, whole=True)
    assert list(begun) == [0]


def test_a_limit_that_holds_no_row_is_refused() -> None:
    with pytest.raises(UsageError, match=r"too short: the first runs \(baseline, baseline \(again\), sdpa_attention\)"):
        Deadline(25 / 3600, lambda cell: 10).check(SEEDS)
    with pytest.raises(UsageError, match="one seed of a fractional design"):
        Deadline(35 / 3600, lambda cell: 10, whole=True).check(SEEDS)
    Deadline(35 / 3600, lambda cell: 10).check(SEEDS)
    Deadline(1 / 3600).check(SEEDS)
    Deadline(None, lambda cell: 1e9).check(SEEDS)


def test_a_limit_that_holds_no_row_is_refused_where_each_cell_is_a_wave() -> None:
    with pytest.raises(UsageError, match=r"too short: the first runs \(baseline, baseline \(again\), sdpa_attention\)"):
        Deadline(25 / 3600, lambda cell: 10).check(SINGLE)
    Deadline(35 / 3600, lambda cell: 10).check(SINGLE)
    Deadline(25 / 3600, lambda cell: 10, beside=2).check(SINGLE)
    with pytest.raises(UsageError, match=r"would take about 20\.0 s"):
        Deadline(15 / 3600, lambda cell: 10, beside=2).check(SINGLE)


def test_a_fraction_whose_cells_run_beside_each_other_needs_less_time() -> None:
    assert list(run(SINGLE, 35, predicted=10, whole=True, takes=5)[0]) == []
    assert list(run(SINGLE, 25, predicted=10, whole=True, takes=5, beside=2)[0]) == [0, 1, 2, 3]


def test_cells_beside_each_other_have_each_their_own_time() -> None:
    """Two at once: a cell begins while another one runs, and must itself end in time."""
    now = [0.0]
    deadline = Deadline(35 / 3600, lambda cell: 10, clock=lambda: now[0])
    begun = 0
    for number, _ in deadline.before(SINGLE):
        begun += 1
        now[0] = 10.0 * (begun // 2)
        assert number < 12
    assert begun == 6, "at 0, 10 and 20 seconds"
    assert now[0] == 30


def test_the_limit_counts_from_the_first_wave_of_all_rungs() -> None:
    now = [0.0]
    deadline = Deadline(30 / 3600, lambda cell: 10, clock=lambda: now[0])
    for _ in deadline.before(SINGLE[:2]):
        now[0] += 10
    assert [number for number, _ in deadline.before(SINGLE[2:3])] == [2]
    now[0] += 10
    assert not list(deadline.before(SINGLE[3:]))
