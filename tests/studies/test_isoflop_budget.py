"""Designs in time: the budget is kept, the held-out run has ten times the compute, and no run is too short or long."""

import math
from dataclasses import replace

import pytest

from assay.errors import UsageError
from assay.studies.execution.ready import chains
from assay.studies.isoflop_budget import DesignLimits, Wanted, largest_study, makespan, runs_of, study_seconds
from assay.studies.isoflop_sizes import flops_of, run_at_width
from assay.studies.kinds.isoflop import BUDGET, LEAST_STEPS
from support.scaled import base

WIDTHS = (16, 24, 32, 40, 48, 64)
WANTED = Wanted({width: run_at_width(base(), width) for width in WIDTHS})


def limits(minutes: float, slots: int = 2, most_tokens: float = math.inf) -> DesignLimits:
    return DesignLimits(60 * minutes, slots, {width: 1e-3 * width / 16 for width in WIDTHS}, most_tokens)


def test_tasks_begin_when_a_slot_is_free() -> None:
    assert makespan([5, 1, 1, 4], 2) == 6
    assert makespan([5, 1, 1, 4], 1) == 11
    assert makespan([3], 4) == 3


@pytest.mark.parametrize("minutes", [30, 60, 120])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_study_ends_in_time_and_uses_most_of_it(minutes: float, slots: int) -> None:
    given = limits(minutes, slots)
    study = largest_study(WANTED, given)
    assert 0.8 * given.seconds < study_seconds(study, WANTED, given) <= given.seconds


def test_the_held_out_run_has_ten_times_the_compute_of_every_fitted_one() -> None:
    study = largest_study(WANTED, limits(60))
    rows = {row.label: row for row in study.rows(base())}
    flops = {label: flops_of(row.run, "total") for label, row in rows.items()}
    held_out = [label for label, row in rows.items() if row.levels[BUDGET] not in study.runs]
    assert len(held_out) == 1
    assert flops[held_out[0]] >= 10 * max(value for label, value in flops.items() if label not in held_out)
    assert list(rows).index(held_out[0]) == 1, "it starts before all but the control"
    fitted = [row.run.training.steps for label, row in rows.items() if label not in held_out]
    assert min(fitted) >= LEAST_STEPS
    budgets = sorted(map(float, study.runs))
    assert budgets[-1] / budgets[0] >= 10**1.4
    assert all(3 <= len(widths) <= 5 for widths in study.runs.values())


def test_branches_leave_time_for_a_larger_study() -> None:
    given = limits(60)
    separate, branched = largest_study(WANTED, given), largest_study(replace(WANTED, branches=True), given)
    assert branched.held_out.flops > separate.held_out.flops
    assert study_seconds(branched, WANTED, given) <= given.seconds
    assert study_seconds(branched.model_copy(update={"branches": False}), WANTED, given) > given.seconds


def test_planned_branches_are_those_of_the_cells() -> None:
    given = limits(60)
    study = largest_study(replace(WANTED, branches=True), given).model_copy(update={"step_seconds": given.step_seconds})
    cells, planned = study.cells(base()), runs_of(study, WANTED, given)
    assert [0 if cell.branch is None else cell.branch.step for cell in cells] == [one.shared for one in planned]
    assert [cell.run.training.steps for cell in cells] == [one.steps for one in planned]
    assert [cell.branch.seconds for cell in cells if cell.branch] == [
        one.saved_seconds for one in planned if one.shared
    ]
    waves = {cell.name: one.seconds for cell, one in zip(cells, planned, strict=True)}
    in_waves = [sum(waves[cell.name] for cell in wave) for wave in chains(cells)]
    assert study_seconds(study, WANTED, given) == pytest.approx(makespan(in_waves, given.slots))


def test_only_fitted_runs_have_further_seeds() -> None:
    study = largest_study(WANTED, limits(60))
    cells = study.cells(base())
    of_seed = [[cell for cell in cells if cell.seed == base().seed + number] for number in range(study.seeds)]
    assert [len(one) for one in of_seed] == [len(of_seed[0]), *[len(of_seed[0]) - 1] * (study.seeds - 1)]
    assert sum(cell.levels[BUDGET] not in study.runs for cell in cells) == 1
    assert [dict(cell.levels) for cell in cells] == [dict(one.levels) for one in runs_of(study, WANTED, limits(60))]


def test_no_run_repeats_its_text_more_often_than_allowed() -> None:
    study = largest_study(WANTED, limits(600, most_tokens=2e6))
    assert all(row.run.training.steps * row.run.tokens_per_step <= 2.01e6 for row in study.rows(base()))


def test_too_little_time_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"no study of scaling ends in 0\.5 minutes here; give a longer --budget"):
        largest_study(WANTED, limits(0.5))
