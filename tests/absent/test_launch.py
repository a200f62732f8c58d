"""How a script is started: variables, the hook of Python, stated values, and an `nvidia-smi` that answers."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.launch import (
    INSIDE,
    StatedRead,
    _found,
    child_environment,
    run_absent,
    stated_read,
    write_driver_query,
)
from assay.errors import UsageError
from assay.hardware import detect
from support.absent import observation


def answer(folder: Path, *options: str, count: int = 1) -> str:
    tool = write_driver_query(folder / "bin", ABSENT["rtx4090"], count) / "nvidia-smi"
    return subprocess.run([tool, *options], capture_output=True, text=True, check=True).stdout


def test_fields_come_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    said = answer(tmp_path, "--query-gpu=index,name,memory.total,power.draw", "--format=csv,noheader", count=2)
    assert said == ("0, NVIDIA GeForce RTX 4090, 24564 MiB, [N/A]\n1, NVIDIA GeForce RTX 4090, 24564 MiB, [N/A]\n")


def test_units_and_a_header_are_as_asked_for(tmp_path: Path) -> None:
    assert answer(tmp_path, "--query-gpu=memory.total", "--format=csv,nounits") == "memory.total\n24564\n"


def test_another_question_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        answer(tmp_path, "-q")


def test_the_lab_detects_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(write_driver_query(tmp_path / "bin", ABSENT["h200"], 2)))
    first, second = detect().accelerators
    assert first == second
    assert (first.name, first.memory_bytes, first.compute_capability) == ("NVIDIA H200", 143771 * 2**20, (9, 0))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("train.py:12=300", StatedRead("train.py", 12, "300")),
        ("models/a.py:7=0.5", StatedRead("models/a.py", 7, "0.5")),
        ("a.py:7=True", StatedRead("a.py", 7, "True")),
    ],
)
def test_a_stated_read_is_a_line_and_a_value(text: str, read: StatedRead) -> None:
    assert stated_read(text) == read


@pytest.mark.parametrize("text", ["train.py=3", "train.py:12", "train.py:x=3", "train.py:12=many", ":12=3"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write a line and its value, such as train\.py:12=300"):
        stated_read(text)


def test_the_library_and_the_hook_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/also/mine")
    made = child_environment(Path("/cache/lib"), tmp_path)
    assert made["LD_LIBRARY_PATH"] == "/cache/lib:/mine"
    assert made["LD_PRELOAD"] == "/cache/lib/libcuda.so.1"
    assert made["PYTHONPATH"] == f"{tmp_path}/site:/also/mine"
    assert Path(made["ASSAY_ABSENT_FOUND"]).is_dir()


def test_a_user_s_own_sitecustomize_runs_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook stands in its place, starts the observer, and then runs it."""
    own, observer = tmp_path / "own", tmp_path / "inside"
    for folder, name, text in (
        (own, "sitecustomize.py", "print('the own one')"),
        (observer, "__init__.py", "def start() -> None:\n    print('the observer')"),
    ):
        folder.mkdir()
        (folder / name).write_text(text)
    monkeypatch.setattr("assay.absent.launch.INSIDE", observer)
    monkeypatch.setenv("PYTHONPATH", str(own))
    variables = child_environment(tmp_path, tmp_path)
    del variables["LD_PRELOAD"]
    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)"],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["the observer", "the own one", str(own / "sitecustomize.py")]


def test_findings_of_processes_without_a_device_are_left_out(tmp_path: Path) -> None:
    peaks = {"device": 0, "requested_bytes": 1, "allocated_bytes": 1, "given_out_bytes": 1, "total_bytes": 9}
    small, large = ({**peaks, "reserved_bytes": size} for size in (1, 2))
    for process, devices in ((1, ()), (2, (small,)), (3, (large,))):
        text = observation(process=process, devices=devices).model_dump_json()
        (tmp_path / f"{process}.json").write_text(text)
    assert [one.process for one in _found(tmp_path)] == [3, 2]


def test_a_gpu_is_looked_for_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.absent.toolchain._driver_devices", lambda: 1)
    with pytest.raises(UsageError, match="this machine has a GPU"):
        run_absent(["nothing-of-this-name"], ABSENT["h100"])


def test_the_command_s_own_process_imports_no_torch() -> None:
    rooms = "assay.absent.launch, assay.api.absent_gpu, assay.report.absent, assay.cli.absent"
    check = f"import {rooms}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def test_the_observer_is_part_of_the_package() -> None:
    assert (INSIDE / "__init__.py").exists()
