"""What is known of a host without torch."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from assay.hardware import Machine, detect

module = import_module("assay.hardware.detect")


def test_this_host() -> None:
    machine = detect()
    assert machine.processor
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.memory_bytes > 2**28


def test_the_version_of_torch_is_that_which_torch_tells() -> None:
    import torch

    assert module.torch_version() == torch.__version__


@pytest.mark.parametrize(
    ("group", "file", "text", "kills"),
    [
        ("0::/user/job", "user/job/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n", 3),
        ("0::/docker/a", "memory.events", "oom 0\noom_kill 0\n", 0),
        ("5:cpu:/x\n4:memory:/job\n0::/", "memory/job/memory.oom_control", "under_oom 0\noom_kill 2\n", 2),
        ("4:memory:/job", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", None),
        ("0::/", "memory.max", "max\n", None),
    ],
)
def test_kills_for_want_of_memory_are_counted_by_the_control_group(
    tmp_path: Path, group: str, file: str, text: str, kills: int | None
) -> None:
    for path, said in ((tmp_path / "proc/self/cgroup", group), (tmp_path / "sys/fs/cgroup" / file, text)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said)
    assert module.oom_kills(tmp_path / "sys", tmp_path / "proc") == kills
    assert module.oom_kills(tmp_path / "sys", tmp_path / "none") is None


def test_accelerators_are_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA A100-SXM4-40GB, 40960, 8.0'\necho 'NVIDIA H200, 143771, 9.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    first, second = detect().accelerators
    assert (first.name, first.memory_bytes, first.compute_capability) == (
        "NVIDIA A100-SXM4-40GB",
        40960 * 2**20,
        (8, 0),
    )
    assert second.compute_capability == (9, 0)
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert detect().accelerators == (first, second)  # a program asks once


def test_a_driver_s_tool_that_fails_names_no_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert detect().accelerators == ()


def test_native_dtypes_follow_the_instructions() -> None:
    plain = Machine(processor="any", cores=1, memory_bytes=1)
    assert plain.native_dtypes == ("float32", "float64")
    low = plain.model_copy(update={"instructions": ("avx512_bf16", "amx_fp16")})
    assert low.native_dtypes == ("float32", "float64", "bfloat16", "float16")


def test_a_run_on_auto_takes_the_accelerator() -> None:
    plain = Machine(processor="any", cores=1, memory_bytes=1)
    assert plain.device("auto") == "cpu"
    assert plain.device("cuda") == "cuda"


def test_no_torch_is_needed() -> None:
    code = "import sys; from assay.hardware import detect, rates; detect(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
