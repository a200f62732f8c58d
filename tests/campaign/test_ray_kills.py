"""Kill −9 of a worker of Ray, and of the coordinator of a study on Ray, at every change of the disk.

One cluster serves the studies of this file. A killed study is resumed by processes of this machine in the place of
Ray's, because the process that tests forks its coordinators, and so must not have threads of Ray.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from assay.config import Home
from assay.executors.elsewhere import WaveFiles
from assay.records.study import StudyEnding
from assay.store.processes import is_locked
from assay.studies.folder import find
from campaign.studies import is_exact, recorded, repaired, run, undisturbed
from support import fake_wave
from support.fake_executor import Here, known_as_here
from support.fake_studies import fake_cells
from support.faults import arm, killed, until

pytestmark = pytest.mark.slow
MOST = 400
"""More changes of the disk than any of these studies makes."""
OWN_CLUSTER = (20, 45, 60)
"""Changes at which a coordinator with a cluster of its own is killed; the cluster takes long to start."""
_STARTED_SECONDS = 120.0


class InPlaceOfRay(Here):
    """Processes of this machine under Ray's name."""

    name: ClassVar[str] = "ray"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster of Ray, which ends with this module."""
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # its sockets' paths must be short
    options = ("--head", "--block", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats")
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ray")), "start", *options, f"--port={port}", f"--temp-dir={folder}"],
        env={**os.environ, "FAKE": "rates", "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = iter(process.stdout.readline, "")
        until(lambda: "Ray runtime started" in next(said, "Ray runtime started"), "no cluster", _STARTED_SECONDS)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=_STARTED_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cells(monkeypatch)
    monkeypatch.setenv("FAKE", "rates")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    waves(monkeypatch, "")


def waves(patch: pytest.MonkeyPatch, fault: str) -> None:
    """Let waves be fakes, with a fault of one of them (`support.fake_wave`)."""

    def command(files: WaveFiles) -> list[str]:
        program = (sys.executable, fake_wave.__file__, str(files.folder), str(files.number))
        return ["/usr/bin/env", f"FAULT_WAVE={fault}", *program]

    patch.setattr(WaveFiles, "command", property(command))


def mended(home: Home, whole: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume the study here: exactly the cells that are missing run.

    Ray kills what its worker started, and a lock is held until the last thread of a killed process has ended.
    """
    until(lambda: not any(map(is_locked, home.reports.glob("*/waves/*.jsonl"))), "a wave is still locked")
    with monkeypatch.context() as patch:
        known_as_here(patch, InPlaceOfRay)
        repaired(home, whole)


def test_a_worker_killed_at_any_change_of_its_wave_leaves_the_rest_for_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    whole = undisturbed(Home(tmp_path / "whole"), "ray")
    for number in range(MOST):
        home = Home(tmp_path / f"killed-at-{number}-")
        waves(monkeypatch, f"0 {number} orphaned")
        process = run(home, "ray")
        code = process.wait()
        waves(monkeypatch, "")
        record = recorded(home)
        assert len(record.cells) == len({one.cell.name for one in record.cells})
        if record.ending is StudyEnding.COMPLETE:
            assert code == 0, process.output.read_text()
            is_exact(record, whole)
            log = WaveFiles(find(home, "last").path, 0).log
            assert number >= log.read_bytes().count(b"\n"), "each line is a change, so the wave was not at its end"
            break
        assert code == 130, process.output.read_text()
        mended(home, whole, monkeypatch)
    else:
        pytest.fail("not every change was tried")


@pytest.mark.parametrize("shared", [True, False], ids=["existing cluster", "own cluster"])
def test_a_coordinator_killed_at_any_change_of_the_disk_loses_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, shared: bool
) -> None:
    if shared:
        monkeypatch.setenv("RAY_ADDRESS", cluster)
    whole = undisturbed(Home(tmp_path / "whole"), "ray")
    for number in range(MOST) if shared else OWN_CLUSTER:
        home = Home(tmp_path / f"killed-at-{number}-")
        process = run(home, "ray", lambda home=home, number=number: arm(home.root, number, killed))
        code = process.wait()
        if code == 0 and shared:
            break
        assert code == -9, process.output.read_text()
        mended(home, whole, monkeypatch)
    else:
        assert not shared, "not every change was tried"
