"""Rows whose times are not compared, because their processes worked while other cells were timed."""

import pytest

from assay.analysis.choices.target import targets
from assay.analysis.claims import outside
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.factors.changes import row_changes
from assay.analysis.metrics import metrics
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.timed import rounds
from assay.records.study import AGAIN, BASELINE, ComparisonRecord
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


def row_of(comparison: Comparison, treatment: str) -> object:
    return next(row for row in comparison.rows if row.treatment == treatment)


def test_times_of_a_row_that_worked_in_the_turns_of_others_are_not_compared() -> None:
    plain = analyse(record())
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    before, after = (next(row for row in one.rows if row.treatment == SPINNER) for one in (plain, spun))
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
    assert shown["outside"] == {"seconds": 5.0, "of_seconds": others}


def test_times_of_the_other_rows_stay() -> None:
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    honest = next(row for row in spun.rows if row.treatment == HONEST)
    assert STEP_SECONDS.name in honest.effects
    assert honest.flags == ()
    assert honest.outside is not None
    assert not honest.outside.too_much


@pytest.mark.parametrize(("share", "flagged"), [(0.019, False), (0.021, True)])
def test_the_bound_is_a_share_of_the_turns_of_others(*, share: float, flagged: bool) -> None:
    others = (len(TREATMENTS) + 1) * TURN_SECONDS
    spun = analyse(with_outside(record(), {SPINNER: share * others}))
    assert [bool(row.flags) for row in spun.rows] == [flagged and name == SPINNER for name in TREATMENTS]


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
    assert outside(record().rounds) == {}
    assert all(row.outside is None for row in analyse(record()).rows)


def test_a_round_that_waiting_cells_disturbed_is_left_out() -> None:
    made = record()
    wave = made.cells[0].wave
    named = next(one for one in made.rounds if one.wave == wave and one.number == 2)
    disturbed = named.model_copy(update={"disturbed": named.order[:1]})
    told = [disturbed if one is named else one for one in made.rounds]
    assert rounds(made.cells, told)[wave] == [0, 2, 3, 4]
    assert rounds(made.cells, made.rounds)[wave] == [0, 1, 2, 3, 4]
