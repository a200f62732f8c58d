"""Cells are predicted from steps that were timed before the study, and forked from servers."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
from assay.records.study import Cell
from assay.studies.execution import ready
from support.runs import run_with

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
