"""Processes that make batches, under the measured child: they end with it, however it ends, and a resume needs none."""

import signal
from pathlib import Path

import psutil
import pytest
from torch.utils.data._utils import worker

from assay.data import Prepared
from assay.records.events import StepEvent
from assay.records.status import Status
from assay.store import history
from assay.store.result import compose
from assay.store.run_folder import RunFolder
from support.forked import Forked
from support.runs import run_folder
from support.workers import Process, finished

LOADED = {"optimizations": [{"name": "loader_workers", "fields": {"workers": 1}}], "model": {"dropout": 0.1}}
STEPS = {"steps": 30, "checkpoint_interval": 7}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, corpus: Prepared) -> RunFolder:
    """A run without workers that nobody disturbed."""
    folder = run_folder(tmp_path_factory.mktemp("plain") / "run", corpus, STEPS, model=LOADED["model"])
    finished(folder)
    return folder


def losses(folder: RunFolder) -> list[float]:
    return [step.loss for step in history.steps(folder.events())]


def test_a_killed_run_takes_its_workers_along_and_goes_on_as_one_without_them(
    corpus: Prepared, plain: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MP_STATUS_CHECK_INTERVAL", 0.2)  # seconds to a look at it; torch has 5
    folder = run_folder(tmp_path / "run", corpus, STEPS, **LOADED)
    with Process(folder, start=Forked) as process:
        process.until("step", step=10)
        workers = psutil.Process(process.child.pid).children(recursive=True)
        process.child.send_signal(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL
    assert len(workers) == 2  # one makes batches, and one waits for values to compare
    assert not psutil.wait_procs(workers, timeout=20)[1]
    _, result = finished(folder)
    assert losses(folder) == losses(plain)
    assert [one.verdict for one in result.evidence] == [True]
    assert result.evidence[0].observed.startswith("4 of 4 sequences prepared by another process; the step waited ")


def test_the_wait_for_data_is_a_share_of_the_steady_steps(plain: RunFolder) -> None:
    result = plain.result()
    assert result is not None
    steady = [step for step in history.steps(plain.events()) if step.phase == "steady"]
    assert all(0 < (step.data_seconds or 0) < step.seconds for step in steady)
    told = sum(step.data_seconds or 0 for step in steady) / sum(step.seconds for step in steady)
    assert result.data_wait_share == pytest.approx(told)
    assert compose(plain, Status.KILLED, "because").data_wait_share == pytest.approx(told)
    assert history.data_wait_share([StepEvent(event="step", step=0, loss=1.0, seconds=1.0, tokens=8)]) is None
