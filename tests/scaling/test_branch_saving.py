"""Work that decay branches saved: as planned, and as measured where they did begin with a checkpoint."""

import pytest

from assay.records.study import AGAIN, BASELINE
from assay.report import view
from assay.scaling.branch_saving import BranchSaving, branch_saving
from assay.studies.isoflop_sizes import flops_of
from support.scaled import scaled_record


def said(found: BranchSaving) -> str:
    return " ".join(map(str, view(found).blocks()))


LABEL = "1.6e+11 FLOPs, width 16"


def test_it_is_said_as_planned_and_as_measured() -> None:
    record = scaled_record(branches=True)
    found = branch_saving(record)
    assert found is not None
    branched = [one.cell for one in record.cells if one.cell.branch is not None]
    shared = sum(cell.branch.step for cell in branched if cell.branch)
    assert (found.planned.runs, found.planned.steps) == (found.measured.runs, found.measured.steps) == (25, shared)
    assert found.planned.seconds is None, "the steps of one width alone have a predicted time"
    assert found.measured.seconds == pytest.approx(0.25 * shared)
    parts = [cell.branch.step / cell.run.training.steps for cell in branched if cell.branch]
    flops = sum(flops_of(cell.run, "total") * part for cell, part in zip(branched, parts, strict=True))
    assert found.measured.flops == pytest.approx(flops)
    assert found.share == pytest.approx(flops / sum(flops_of(one.cell.run, "total") for one in record.cells))
    assert f"25 decay branches did not repeat {shared:,} steps, which took their trunks" in said(found)


def test_a_study_without_branches_has_none() -> None:
    assert branch_saving(scaled_record()) is None


def test_a_branch_that_trained_as_a_whole_saved_nothing() -> None:
    record = scaled_record(branches=True, changes={LABEL: {"branch": None}})
    found = branch_saving(record)
    assert found is not None
    (cell,) = (one.cell for one in record.cells if one.cell.treatment == LABEL)
    assert cell.branch is not None
    assert found.planned.steps - found.measured.steps == cell.branch.step
    assert "One more trained all of its steps, because its trunk had no checkpoint." in said(found)


def test_the_time_of_steps_that_were_not_kept_is_not_known() -> None:
    record = scaled_record(branches=True)
    bare = [one.model_copy(update={"curve": one.curve.model_copy(update={"step_seconds": ()})}) for one in record.cells]
    found = branch_saving(record.model_copy(update={"cells": tuple(bare)}))
    assert found is not None
    assert found.measured.seconds is None
    assert "which took" not in said(found)


@pytest.mark.parametrize(
    ("changes", "apart", "says"),
    [
        ({}, 0.0, "The control as a branch and as a whole run has the same loss to the last bit."),
        ({AGAIN: {"val_loss": 3.0}, BASELINE: {"val_loss": 3.25}}, 0.25, "has losses that differ by 0.25 nats."),
        ({AGAIN: {"val_loss": None}}, None, ""),
    ],
)
def test_the_control_as_a_branch_is_held_against_its_whole_run(
    changes: dict[str, dict[str, object]], apart: float | None, says: str
) -> None:
    record = scaled_record(branches=True)
    cells = [
        one.model_copy(update={"result": one.result.model_copy(update=changes.get(one.cell.treatment, {}))})
        for one in record.cells
    ]
    found = branch_saving(record.model_copy(update={"cells": tuple(cells)}))
    assert found is not None
    assert found.apart == apart
    assert says in said(found)
    assert apart is not None or "The control" not in said(found)
