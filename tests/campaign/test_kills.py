"""Kill -9 at 40 moments of a run, of a comparison and of a run on two ranks: every record is right, every process gone.

And what was killed goes on bit for bit: the losses of all steps and the last checkpoint are those of a run that nobody
disturbed. One moment is in the quick suite.
"""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store import history
from assay.store.index import Store, reconcile
from assay.store.run_folder import RunFolder
from campaign.killing import KINDS, STEPS, Moment, assay, killed, resumed
from support.corpora import TEXT
from support.forked import Forked

MOMENTS = 40
QUICK = 3
"""The number of the moment that the quick suite tries."""

Straight = dict[str, tuple[list[float], bytes, bytes]]
"""By optimizations: the losses and the last checkpoint of a run that nobody disturbed."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(TEXT)
    return f"data.path={path}"


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Straight]:
    """Filled as the kinds are needed."""
    return {}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("template")


def undisturbed(kind: str, straight: dict[str, Straight], template: Path, text: str) -> Straight:
    """What the runs of one kind come to, and a home that has its corpus and the machine's rates."""
    if kind not in straight:
        home = template / kind
        # A comparison measures the machine, which is switched off in the process that tests.
        start = subprocess.Popen if kind == "compare" else Forked
        process = assay(home, *KINDS[kind], "training.check_values=false", text, start=start)
        process.communicate(timeout=300)
        assert process.returncode == 0
        folders = [RunFolder(path) for path in (home / "runs").iterdir()]
        straight[kind] = {stack(folder): (losses(folder), *checkpoint(folder)) for folder in folders}
    return straight[kind]


def stack(folder: RunFolder) -> str:
    return "+".join(map(str, folder.spec().config.optimizations))


def losses(folder: RunFolder) -> list[float]:
    return [step.loss for step in history.steps(folder.events())]


def checkpoint(folder: RunFolder) -> tuple[bytes, bytes]:
    last = folder.checkpoints / f"step-{STEPS:08d}"
    return (last / "model.safetensors").read_bytes(), (last / "optimizer.safetensors").read_bytes()


def cases() -> list[Any]:
    return [pytest.param(one, marks=() if one == QUICK else pytest.mark.slow) for one in range(MOMENTS)]


@pytest.mark.parametrize("number", cases())
def test_a_kill_loses_nothing(
    straight: dict[str, Straight], template: Path, text: str, tmp_path: Path, number: int
) -> None:
    moment = Moment.draw(number)
    expected = undisturbed(moment.kind, straight, template, text)
    home = Home(tmp_path / "home")
    shutil.copytree(template / moment.kind / "data", home.data)
    shutil.copytree(template / moment.kind / "cache", home.cache)
    code, left = killed(home.root, moment, text)
    assert left == [], f"{moment}: processes are left 10 s later"
    said = json.loads(assay(home.root, "runs", "ls", "--json").communicate(timeout=60)[0])
    assert {one["run"]: one["status"] for one in said} == {
        folder.id: str(the_right_one(folder, moment, code)) for folder in folders(home)
    }, moment
    dead = [folder for folder in folders(home) if result(folder).status is Status.KILLED]
    for folder in random.Random(number).sample(dead, min(1, len(dead))):
        assert resumed(home.root, folder.id)["status"] == "done"
        assert (losses(folder), *checkpoint(folder)) == expected[stack(folder)], moment
    assert not reconcile(home, Store(home)).notes


def folders(home: Home) -> list[RunFolder]:
    return [RunFolder(path) for path in home.runs.iterdir()] if home.runs.exists() else []


def result(folder: RunFolder) -> RunResult:
    found = folder.result()
    assert found is not None
    return found


def the_right_one(folder: RunFolder, moment: Moment, code: int) -> Status:
    """How this run must be listed, by what its log says; and its record must have the steps of the log."""
    events, found = folder.events(), result(folder)
    over = next((event.status for event in events if event.event == "end"), None)
    assert found.steps == len(history.steps(events)), moment
    if over == Status.DONE:
        return Status.DONE
    assert moment.victim == "command" or code != 0
    if found.status is Status.DONE:
        assert found.steps == STEPS
        return Status.DONE  # killed between its result and the log's last line
    return Status.KILLED
