"""Ray on a local cluster and Slurm through submitit's local executor: the same record as on this machine."""

import sys
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.executors import executor, executors
from assay.executors.base import Work
from assay.executors.elsewhere import WaveFiles
from assay.executors.slurm import Slurm, _parameters
from assay.records.study import StudyEnding
from support import fake_wave
from support.fake_studies import fake_cells, run, shape

NEEDED = {"ray": "ray", "slurm": "submitit"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    fake_cells(monkeypatch)
    monkeypatch.setattr(WaveFiles, "command", property(command))
    monkeypatch.delenv("ASSAY_SLURM", raising=False)
    return Home(tmp_path)


def command(files: WaveFiles) -> list[str]:
    return [sys.executable, fake_wave.__file__, str(files.folder), str(files.number)]


@pytest.mark.parametrize(
    ("name", "timed"),
    [
        pytest.param("ray", True, marks=pytest.mark.slow),
        pytest.param("ray", False, marks=pytest.mark.slow),  # a local cluster takes five seconds to start
        pytest.param("slurm", True, marks=pytest.mark.slow),
        ("slurm", False),
    ],
)
def test_the_record_is_that_of_this_machine(home: Home, name: str, timed: bool) -> None:
    pytest.importorskip(NEEDED[name])
    there = run(home, name, timed=timed)
    assert there.ending is StudyEnding.COMPLETE
    assert shape(there) == shape(run(home, "local", timed=timed))


@pytest.mark.parametrize(("text", "least", "most"), [("", 60 * 24 * 30, 60 * 24 * 1000), ("timeout_min=7", 7, 7)])
def test_without_slurm_a_wave_is_not_ended_after_minutes(
    home: Home, monkeypatch: pytest.MonkeyPatch, text: str, least: int, most: int
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("ASSAY_SLURM", text)
    slurm = Slurm()
    slurm.open(Work([], lambda cell: pytest.fail("nothing runs"), 0, lambda news: None, home, home.root))
    assert least <= slurm._executor._executor.parameters["timeout_min"] <= most


@pytest.mark.parametrize("name", NEEDED)
def test_without_its_package_a_sentence_says_what_to_install(
    home: Home, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, NEEDED[name], None)
    with pytest.raises(UsageError, match=f"the executor {name} needs the package .*pip install"):
        run(home, name)
    assert not home.reports.exists()


def test_all_are_known_by_name() -> None:
    assert {"local", "ray", "slurm"} <= executors().keys()
    assert executor("slurm").name == "slurm"


@pytest.mark.parametrize(
    ("text", "found"),
    [("", {}), ("slurm_partition=gpu timeout_min=240", {"slurm_partition": "gpu", "timeout_min": 240})],
)
def test_parameters_of_slurm(text: str, found: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_SLURM", text)
    assert _parameters() == found


def test_a_parameter_without_a_value_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_SLURM", "partition")
    with pytest.raises(UsageError, match="write key=value pairs"):
        _parameters()
