"""Branches follow their trunk in one wave, begin with its checkpoint, and train as a whole where there is none."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay.config import Home
from assay.records.run import Branch
from assay.records.study import AGAIN, BASELINE, Cell, Protocol
from assay.store.run_folder import RunFolder, RunSpec, new_id
from assay.studies.execution.deadline import Deadline, with_rest
from assay.studies.execution.order import in_order, waves_in_order
from assay.studies.execution.ready import predicted_seconds
from assay.studies.execution.trunks import Trunks, chains
from assay.studies.folder import StudyFolder, StudyPlan
from support.children import make_ready
from support.scaled import BRANCHED, base

CELLS = BRANCHED.cells(base())
WAVES = chains(CELLS)
TRUNK = next(wave for wave in WAVES if len(wave) > 1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path).ready()


def test_every_cell_is_in_one_wave_after_its_trunk() -> None:
    assert sorted(cell.name for wave in WAVES for cell in wave) == sorted(cell.name for cell in CELLS)
    for wave in WAVES:
        assert [cell.branch is None for cell in wave] == [True, *[False] * (len(wave) - 1)]
        assert {cell.branch.cell for cell in wave if cell.branch} <= {wave[0].name}
    assert [wave[0].name for wave in WAVES] == [cell.name for cell in CELLS if cell.branch is None]


def test_branches_without_their_trunk_are_a_wave_of_their_own() -> None:
    assert chains(TRUNK[1:]) == [TRUNK[1:]]


def test_with_a_limit_of_time_a_trunk_stays_before_its_branches() -> None:
    ordered = chains(in_order(CELLS, "isoflop"))
    rows = [cell.treatment for cell in CELLS]
    for _, wave in waves_in_order(list(enumerate(ordered)), CELLS, rows, "isoflop"):
        assert wave[0].branch is None


def test_cells_of_one_trunk_take_their_times_one_after_the_other() -> None:
    deadline = Deadline(1.0, lambda cell: 10.0, beside=4)
    assert deadline.expected([(0, TRUNK)]) == 10.0 * len(TRUNK)
    assert deadline.expected(list(enumerate(WAVES))) == pytest.approx(10.0 * -(-len(CELLS) // 4))


def test_the_rest_of_a_trunk_needs_no_control() -> None:
    plan = StudyPlan(
        id="x",
        created="",
        kind="isoflop",
        title="",
        base=CELLS[0].run,
        seeds=(0,),
        treatments=(),
        protocol=Protocol(blocks=0, resident=1, available_bytes=1),
        waves=(TRUNK,),
    )
    assert with_rest(plan, TRUNK[2:]).waves == (TRUNK[:2], TRUNK[2:])


def test_a_branch_is_predicted_without_the_steps_of_its_trunk(home: Home) -> None:
    known = make_ready(home)
    assert known.predicted is not None
    cell = TRUNK[1]
    assert cell.branch is not None
    timed = replace(known, run=cell.run, predicted=known.predicted.model_copy(update={"step_seconds": 2.0}))
    seconds = predicted_seconds({cell.name: timed})
    whole, branched = seconds(cell.model_copy(update={"branch": None})), seconds(cell)
    assert whole is not None
    assert branched == whole - 2.0 * cell.branch.step


def begun(home: Home, cell: Cell, keeps: int) -> str:
    """The run of a cell, with a checkpoint."""
    folder = RunFolder(home.runs / new_id("0" * 12))
    folder.prepare(RunSpec(id=folder.id, created="", identity="0" * 12, config=cell.run, data_folder=""))
    place = folder.checkpoints / f"step-{keeps:08d}"
    place.mkdir(parents=True)
    save_file({"head.norm.weight": np.ones(8, np.float32)}, place / "model.safetensors")
    return folder.id


def test_a_branch_begins_with_the_newest_run_of_its_trunk(home: Home) -> None:
    trunk, cell = TRUNK[:2]
    assert cell.branch is not None
    training, step = cell.run.training, cell.branch.step
    folder = StudyFolder(home.reports / "study")
    folder.path.mkdir(parents=True)
    assert Trunks(home, "study").branch(cell, training) is None, "there is no run of it"
    earlier, later = begun(home, trunk, step), begun(home, trunk, step)
    folder.append({"event": "cell_start", "cell": trunk.name, "run": earlier, "wave": 0})
    trunks = Trunks(home, "study")
    assert trunks.branch(cell, training) == Branch(run=earlier, step=step)
    trunks.begin(trunk, later)
    assert trunks.branch(cell, training) == Branch(run=later, step=step)
    assert trunks.branch(trunk, trunk.run.training) is None
    moved = training.model_copy(update={"learning_rate": 1e-5})
    assert trunks.branch(cell, moved) is None, "its rates are not those of the trunk"


@pytest.mark.parametrize("lost", ["checkpoint", "folder"])
def test_a_branch_whose_trunk_has_no_checkpoint_trains_as_a_whole(home: Home, lost: str) -> None:
    trunk, cell = TRUNK[:2]
    assert cell.branch is not None
    trunks = Trunks(home, "study")
    run = begun(home, trunk, cell.branch.step + (lost == "checkpoint"))
    trunks.begin(trunk, run)
    if lost == "folder":
        shutil.rmtree(Path(home.runs) / run)
    assert trunks.branch(cell, cell.run.training) is None


def test_the_second_run_of_the_control_has_no_trunk() -> None:
    by_name = {cell.treatment: cell for cell in CELLS if cell.seed == 0}
    assert by_name[BASELINE].branch is not None
    assert by_name[AGAIN].branch is None
    assert by_name[BASELINE].run == by_name[AGAIN].run
