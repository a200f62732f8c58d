"""A home in a temporary folder, a run that needs no corpus, and the stand-in for the measured child."""

import os
import sys
from pathlib import Path

import pytest

from assay.config import Home, validate
from assay.launch import spawn as launcher
from assay.launch.prepare import ReadyRun
from assay.optimizations import resolve_run
from assay.records.prediction import Predicted

FAKE_WORKER = (sys.executable, "-S", str(Path(__file__).parent / "fake_worker.py"))
NO_SERVER = (sys.executable, "-S", "-c", "")
"""A fork server that ends at once, so that children are started."""

LAUNCH = """
import sys
from assay.launch import spawn as launcher
from assay.launch import prepare
from assay.records.prediction import Predicted
launcher.WORKER = tuple(sys.argv[1].split("|"))
launcher.FORK_SERVER = (sys.executable, "-S", "-c", "")
prepare.predict = lambda run, machine: Predicted()
from assay.cli.main import main
sys.argv = ["assay", *sys.argv[2:]]
main()
"""
"""Code of a process that is the command line with the worker that its first argument names."""


class Fake:
    """How the stand-in behaves; nothing is trained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(launcher, "WORKER", FAKE_WORKER)
        monkeypatch.setattr(launcher, "FORK_SERVER", NO_SERVER)
        monkeypatch.delenv("FAKE", raising=False)

    def behaves(self, moods: str = "", status: str = "done") -> None:
        self._monkeypatch.setenv("FAKE", moods)
        self._monkeypatch.setenv("FAKE_STATUS", status)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ready()


def make_ready(home: Home, steps: int = 6, **training: object) -> ReadyRun:
    values = {
        "model": {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, "vocab_size": 256},
        "training": {"steps": steps, "batch_size": 2, **training},
    }
    return ReadyRun(resolve_run(validate(values)), home.data, "0" * 12, Predicted(tensors_peak_bytes=990))


@pytest.fixture
def ready_run(home: Home) -> ReadyRun:
    return make_ready(home)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that is only waiting to be reaped has."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
