"""What is known of a host without torch."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from assay.hardware import Machine, detect
from assay.hardware.detect import instruction_set

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


AVX2 = ("sse4_1", "avx", "avx2")
CORE = (*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
ZEN4 = (*CORE, "avx512_vnni", "avx512_bf16")
SAPPHIRE_RAPIDS = (*ZEN4, "avx_vnni", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")


@pytest.mark.parametrize(
    ("flags", "newest"),
    [
        ((), ""),
        (("asimd", "bf16"), ""),
        (("sse4_1",), "sse41"),
        (AVX2, "avx2"),
        ((*AVX2, "avx_vnni"), "avx2_vnni"),
        (CORE, "avx512_core"),
        ((*AVX2, "avx512f"), "avx2"),
        (ZEN4, "avx512_core_bf16"),
        (SAPPHIRE_RAPIDS, "avx512_core_amx"),
    ],
)
def test_the_newest_set_whose_parts_are_all_there(flags: tuple[str, ...], newest: str) -> None:
    assert instruction_set(flags, {}) == newest


@pytest.mark.parametrize(
    ("allowed", "used"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, "avx2"),
        ({"DNNL_MAX_CPU_ISA": "AVX512_CORE"}, "avx512_core"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX512_CORE"}, "avx2"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}, "avx2"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}, "avx512_core_bf16"),
        ({"ONEDNN_MAX_CPU_ISA": "DEFAULT"}, "avx512_core_bf16"),
        ({"ONEDNN_MAX_CPU_ISA": ""}, "avx512_core_bf16"),
    ],
)
def test_the_user_may_lower_it_and_not_raise_it(allowed: dict[str, str], used: str) -> None:
    assert instruction_set(ZEN4, allowed) == used
