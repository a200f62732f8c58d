"""The stand-in for nvidia-smi answers as the tool does."""

import subprocess
from pathlib import Path

import pytest

from assay.absent.driver_query import write_driver_query
from assay.absent.gpus import ABSENT
from assay.hardware import detect


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
