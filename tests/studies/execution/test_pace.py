from types import SimpleNamespace
from typing import Any

from assay.config import load
from assay.executors.base import Ended
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import Cell
from assay.studies.execution.pace import START_SECONDS, Pace, process_seconds
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
