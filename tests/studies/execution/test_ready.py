"""Cells are predicted from steps that were timed before, forked from servers, and follow their trunks."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay.config import Home, ResolvedRun
from assay.data.progress import silent
from assay.estimator.timing.step_time import digest
from assay.files import write_file
from assay.hardware import detect
from assay.hardware.rates import step_times_file, with_step_times
from assay.hardware.step_times import StepTimes, depths
from assay.launch.prepare import ReadyRun
from assay.platforms import CAN_FORK_WITH_THREADS
from assay.records.prediction import Predicted
from assay.records.run import Branch
from assay.records.study import AGAIN, BASELINE, Cell, Protocol
from assay.store.run_folder import RunFolder, RunSpec, new_id
from assay.studies.execution import ready
from assay.studies.execution.deadline import Deadline, with_rest
from assay.studies.execution.order import in_order, waves_in_order
from assay.studies.execution.ready import Trunks, chains, predicted_seconds
from assay.studies.folder import StudyFolder, StudyPlan
from support.children import make_ready
from support.runs import run_with
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


@pytest.mark.parametrize("timed", [True, False])
def test_cells_without_times_have_no_predicted_time_and_no_load(
    home: Home, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    said = Predicted(
        step_seconds=0.1,
        step_seconds_margin=0.2,
        under_load=True,
        roofline_factor=2.0,
        roofline_seconds=0.1,
        allocations=7,
    )
    known = replace(make_ready(home), predicted=said)
    monkeypatch.setattr(ready, "ready", lambda *_: known)
    monkeypatch.setattr(ready, "measured_machine", lambda *_, **__: None)
    cell = CELLS[0].model_copy(update={"run": known.run})
    (found,) = ready.ready_cells([cell], detect(), home, silent, timed=timed)[1].values()
    assert found.predicted == (said if timed else Predicted(allocations=7))


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


BEFORE = Predicted(tensors_peak_bytes=990)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[ResolvedRun]:
    """Runs whose steps are asked for; those of four sequences are timed, and no others."""
    asked: list[ResolvedRun] = []

    def calibrate(runs: Iterable[ResolvedRun], home: Home, threads: int | None, *others: Any) -> dict[str, str]:
        for run in runs:
            asked.append(run)
            key, layers = digest(run, "cpu"), run.model.n_layer
            assert key is not None
            if run.training.batch_size == 4:
                at = depths(layers)
                times = {key: StepTimes(depths=at, turns=((0.25,) * len(at),) * 3)}
                home.ready()
                write_file(step_times_file(home), with_step_times(home, detect(), "cpu", times, threads))
        return {}

    monkeypatch.setattr(ready, "calibrate", calibrate)
    return asked


def cell(run: ResolvedRun) -> ReadyRun:
    return ReadyRun(run, Path("data"), "digest", BEFORE)


def test_timed_cells_are_predicted_anew_and_others_keep_their_prediction(
    tmp_path: Path, timed: list[ResolvedRun]
) -> None:
    run = run_with().model_copy(update={"device": "cpu"})
    other = run.model_copy(update={"training": run.training.model_copy(update={"batch_size": 3})})
    threaded = run.model_copy(update={"threads": 1})
    cells = {
        "a": cell(run),
        "a, seed 1": cell(run.model_copy(update={"seed": 1})),
        "b": cell(other),
        "c": replace(cell(threaded), predicted=None),
    }
    found = ready.with_step_times(cells, Home(tmp_path / "home"), silent)
    assert [one.run for one in found.values()] == [one.run for one in cells.values()]
    assert len(timed) == 4
    for name in ("a", "a, seed 1", "c"):
        predicted = found[name].predicted
        assert predicted is not None
        assert predicted.step_seconds == 0.25
        assert predicted.step_seconds_margin is not None
    assert found["b"].predicted == BEFORE


@pytest.mark.skipif(not CAN_FORK_WITH_THREADS, reason="no cell is forked here")
@pytest.mark.parametrize(
    ("device", "timed_study", "servers"),
    [
        ("cpu", False, [1, 1, 1, 1]),
        ("cpu", True, [0, 0, 0, 0]),
        ("cuda", False, [1, 1, 1, 1]),
        ("cuda", True, [1, 1, 2, 3]),
    ],
)
def test_a_wave_of_timed_rows_on_a_gpu_has_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, timed_study: bool, servers: list[int]
) -> None:
    run = run_with().model_copy(update={"device": device})
    rows = [("baseline", 0, 0), ("lion", 0, 0), ("baseline", 0, 1), ("baseline", 1, 0)]
    waves = [Cell(treatment=name, seed=seed, process=process, run=run) for name, seed, process in rows]
    with ready.Servers([cell(run)], Home(tmp_path), timed=timed_study) as found:
        given = [found.of(one) for one in waves]
    numbers: dict[int, int] = {}
    assert [0 if one is None else numbers.setdefault(id(one), len(numbers) + 1) for one in given] == servers
    assert not any(one is not None and one.pid for one in given)  # none is started before a cell is
