"""Rows whose times are not compared, because their processes worked while other cells were timed."""

import pytest

from assay.analysis.choices.target import targets
from assay.analysis.claims import between_of, outside_of
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.factors.changes import row_changes
from assay.analysis.metrics import metrics
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import Row
from assay.analysis.timed_processes import rounds
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord
from assay.records.timing import Outside, Round
from support.comparisons import TREATMENTS, record

SPINNER, HONEST = TREATMENTS[1], TREATMENTS[0]
TURN_SECONDS = 0.5


def with_outside(made: ComparisonRecord, used: dict[str, float]) -> ComparisonRecord:
    """Every turn takes half a second; cells of some rows use processor seconds in each round of their first wave."""
    first = {one.cell.name: one.cell.treatment for one in made.cells if one.wave == made.cells[0].wave}

    def filled(one: Round) -> Round:
        seconds = {name: used.get(first.get(name, ""), 0.0) for name in one.order}
        return one.model_copy(
            update={"turn_seconds": dict.fromkeys(one.order, TURN_SECONDS), "outside_seconds": seconds}
        )

    return made.model_copy(update={"rounds": tuple(filled(one) for one in made.rounds)})


def row_of(comparison: Comparison, treatment: str) -> Row:
    return next(row for row in comparison.rows if row.treatment == treatment)


def with_between(made: ComparisonRecord, share: float, more: dict[str, float]) -> ComparisonRecord:
    """A share of the steps' time passes between the steps of each block, and in some rows more."""

    def filled(one: CellResult) -> CellResult:
        of_row = share + more.get(one.cell.treatment, 0.0)
        blocks = tuple(
            block.model_copy(update={"between_seconds": of_row * block.seconds}) for block in one.result.blocks
        )
        return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})

    return made.model_copy(update={"cells": tuple(filled(one) for one in made.cells)})


def test_times_of_a_row_that_worked_in_the_turns_of_others_are_not_compared() -> None:
    plain = analyse(record())
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    before, after = (row_of(one, SPINNER) for one in (plain, spun))
    times = [name for name, one in metrics().items() if one.kind == "timed" and one.unit != "bytes"]
    assert [after.metrics[name] for name in times] == [None] * len(times)
    assert not set(times) & {*after.effects, *after.verdicts}
    assert after.break_even is None
    assert after.metrics["process_peak_bytes"] == before.metrics["process_peak_bytes"]
    assert after.metrics["val_loss"] == before.metrics["val_loss"]
    assert set(before.effects) - set(after.effects) == set(times)
    others = (len(TREATMENTS) + 1) * TURN_SECONDS * 5
    assert after.outside == Outside(seconds=5.0, of_seconds=others)
    assert after.flags == (
        f"times are not compared: its processes used 5 processor seconds while other cells were timed for "
        f"{others:.2g} s, more than 2 %",
    )
    shown = next(row for row in spun.to_json()["rows"] if row["treatment"] == SPINNER)
    assert shown["outside"] == {"seconds": 5.0, "of_seconds": others, "ranks": 1}


def test_times_of_the_other_rows_stay() -> None:
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    honest = row_of(spun, HONEST)
    assert STEP_SECONDS.name in honest.effects
    assert honest.flags == ()
    assert honest.outside is not None
    assert not honest.outside.too_much


@pytest.mark.parametrize(("share", "flagged"), [(0.019, False), (0.021, True)])
def test_the_bound_is_a_share_of_the_turns_of_others(*, share: float, flagged: bool) -> None:
    others = (len(TREATMENTS) + 1) * TURN_SECONDS
    spun = analyse(with_outside(record(), {SPINNER: share * others}))
    assert [bool(row.flags) for row in spun.rows] == [flagged and name == SPINNER for name in TREATMENTS]


def test_each_rank_may_use_its_share() -> None:
    assert Outside(seconds=0.15, of_seconds=4.0).too_much
    assert not Outside(seconds=0.15, of_seconds=4.0, ranks=2).too_much


@pytest.mark.parametrize("usual", [0.0, 0.04, 0.3])
@pytest.mark.parametrize(("more", "flagged"), [(0.04, False), (0.06, True)])
def test_work_between_steps_ends_a_rows_claim_on_times(*, usual: float, more: float, flagged: bool) -> None:
    found = analyse(with_between(record(), usual, {SPINNER: more}))
    assert [bool(row.flags) for row in found.rows] == [flagged and name == SPINNER for name in TREATMENTS]
    assert (STEP_SECONDS.name in row_of(found, SPINNER).effects) is not flagged
    if flagged:
        (said,) = row_of(found, SPINNER).flags
        assert said.startswith("times are not compared: ")
        assert f"the baselines' share is {100 * usual:.1f} %, and 5 points more are allowed" in said


def with_gaps(made: ComparisonRecord, gaps: dict[str, float]) -> ComparisonRecord:
    """The median time between two steps is 0.15 ms, and in some rows another, in seconds."""

    def filled(one: CellResult) -> CellResult:
        gap = {"usual_between_seconds": gaps.get(one.cell.treatment, 1.5e-4), "between_seconds": 0.0}
        blocks = tuple(block.model_copy(update=gap) for block in one.result.blocks)
        return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})

    return made.model_copy(update={"cells": tuple(filled(one) for one in made.cells)})


def test_a_longer_time_between_all_steps_than_in_the_baselines_ends_a_rows_claim_on_times() -> None:
    blocks = [block for one in record().of(SPINNER) for block in one.result.blocks]
    seconds = sum(one.seconds for one in blocks) / sum(one.steps for one in blocks)
    for more, flagged in ((1.3e-4 + 0.01 * seconds, False), (1.7e-4 + 0.01 * seconds, True)):
        found = analyse(with_gaps(record(), {SPINNER: 1.5e-4 + more}))
        assert [bool(row.flags) for row in found.rows] == [flagged and name == SPINNER for name in TREATMENTS]
    (said,) = row_of(found, SPINNER).flags
    assert "0.15 ms between two of a baseline: no step's clock has the difference" in said


def test_a_few_ticks_of_the_kernels_clock_do_not_count() -> None:
    assert not Outside(seconds=0.04, of_seconds=0.1).too_much
    assert Outside(seconds=0.05, of_seconds=0.1).too_much


def test_a_baseline_that_works_in_the_turns_of_others_is_no_control() -> None:
    one = analyse(with_outside(record(), {BASELINE: 1.0}))
    assert all(STEP_SECONDS.name in row.effects for row in one.rows)
    assert any(said.startswith("Times of baseline are not compared, so the other baseline") for said in one.caveats)
    both = analyse(with_outside(record(), {BASELINE: 1.0, AGAIN: 1.0}))
    assert not any(STEP_SECONDS.name in row.effects for row in (*both.rows, both.again))
    assert both.baseline.metrics[STEP_SECONDS.name] is None
    assert any("so no row has a change of time" in said for said in both.caveats)


def test_effects_of_factors_and_times_to_a_target_leave_such_a_row_out() -> None:
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    found = row_changes(spun, STEP_SECONDS)
    assert found is not None
    assert SPINNER not in found.rows
    assert HONEST in found.rows
    reached = targets(spun)
    assert reached is not None
    timeless = {one.row.treatment for one in reached.rows if all(run.seconds is None for run in one.runs)}
    assert timeless == {SPINNER}


def test_older_rounds_say_nothing_about_it() -> None:
    assert all(outside_of(record(), name) is None and between_of(record(), [name]) is None for name in TREATMENTS)
    assert all(row.outside is None for row in analyse(record()).rows)


def test_a_round_that_waiting_cells_disturbed_is_left_out() -> None:
    made = record()
    wave = made.cells[0].wave
    named = next(one for one in made.rounds if one.wave == wave and one.number == 2)
    disturbed = named.model_copy(update={"disturbed": named.order[:1]})
    told = [disturbed if one is named else one for one in made.rounds]
    assert rounds(made.cells, told)[wave] == [0, 2, 3, 4]
    assert rounds(made.cells, made.rounds)[wave] == [0, 1, 2, 3, 4]
