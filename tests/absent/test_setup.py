"""An environment beside one with a CPU build: the same packages, another torch, and where it lies."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.absent import setup
from assay.absent.setup import TORCH_BYTES, make, plan
from assay.errors import UsageError

PACKAGES = [
    ("torch", "2.11.0+cpu", "", False, 10**9),
    ("torchvision", "0.26.0+cpu", "", False, 10**6),
    ("nvidia-cublas", "13.1", "", False, 10**9),
    ("pip", "25.0", "", False, 10**6),
    ("numpy", "2.4.0", "", False, 2 * 10**6),
    ("mine", "0.1", "file:///home/me/mine", True, 10),
    ("tool", "1.0", "https://example.org/tool.whl", False, 10),
]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of an environment whose interpreter lists `PACKAGES`."""
    found = (tmp_path / ".venv", [setup._Package(*one) for one in PACKAGES])
    monkeypatch.setattr(setup, "_looked", lambda program: found)
    return tmp_path / ".venv"


def test_the_new_one_has_the_same_packages_and_torch_s_release(old: Path) -> None:
    wanted = plan(sys.executable)
    assert wanted.folder == old.with_name(".venv-cuda")
    assert wanted.requirements == (
        *("torch===2.11.0", "torchvision===0.26.0", "numpy==2.4.0", "--editable", "/home/me/mine"),
        "https://example.org/tool.whl",
    )
    assert wanted.nbytes == TORCH_BYTES + 3 * 10**6 + 20


@pytest.mark.parametrize(("version", "wanted"), [("2.9.1", "torch===2.11.0"), ("2.14.1+cpu", "torch===2.14.1")])
def test_a_release_that_is_too_old_is_replaced(version: str, wanted: str) -> None:
    assert setup._torch(version) == wanted


def test_one_that_exists_is_not_touched(old: Path) -> None:
    old.with_name(".venv-cuda").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"\.venv-cuda exists; name its Python"):
        plan(sys.executable)


def test_this_environment_lists_its_packages() -> None:
    prefix, packages = setup._looked(sys.executable)
    found = {one.name.lower(): one for one in packages}
    assert found["torch"].nbytes > 10**8
    assert found["numpy"].requirement == [f"{found['numpy'].name}=={found['numpy'].version}"]
    assert prefix.is_absolute()


def test_it_is_made_by_venv_and_pip(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(setup.subprocess, "run", run)
    monkeypatch.setattr(setup, "environment", lambda command: commands.append(["checked", *command]))
    wanted = plan(sys.executable)
    said: list[str] = []
    make(wanted, said.append)
    python = str(wanted.new_python)
    assert [one[:3] for one in commands] == [
        [sys.executable, "-m", "venv"],
        [python, "-m", "pip"],
        ["checked", python],
    ]
    assert commands[1][-len(wanted.requirements) :] == list(wanted.requirements)
    assert len(said) == 2


def test_a_complaint_of_pip_is_one_sentence(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ERROR: No matching distribution found for mine==0.1\n[notice] a newer pip"
    done = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(setup.subprocess, "run", lambda *given, **options: done)
    with pytest.raises(UsageError, match=r"-m venv .* failed: ERROR: No matching distribution"):
        make(plan(sys.executable), lambda text: None)


def test_an_environment_that_cannot_be_made_is_removed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan(sys.executable)

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        wanted.new_python.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    def check(command: list[str]) -> None:
        raise UsageError("torch is a CPU build")

    monkeypatch.setattr(setup.subprocess, "run", run)
    monkeypatch.setattr(setup, "environment", check)
    with pytest.raises(UsageError, match="is a CPU build"):
        make(wanted, lambda text: None)
    assert not wanted.folder.exists()


def test_the_list_of_packages_is_json() -> None:
    done = subprocess.run([sys.executable, "-c", setup._LOOK], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {"prefix", "packages"}
