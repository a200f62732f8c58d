"""What is found on machines that lack something, and on one that lacks nothing."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any

import pytest

from assay.hardware.detect import Accelerator, Machine
from assay.hardware.examination import Finding, FindingState, Host, examine, jitter

ALL = {
    "torch": "2.13.0+cpu",
    "memray": "1.20",
    "transformers": "5",
    "torchao": "1",
    "ray": "2",
    "submitit": "1",
    **dict.fromkeys(("starlette", "uvicorn", "plotly", "tensorboard", "mlflow", "wandb", "trackio"), "1"),
}
FOR_DEVELOPERS = {"browser", "docs", "test", "track"}
"""Extras of which nothing is refused to a user, and one that joins others."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A Linux machine that has everything but a GPU."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/clear_refs").touch()
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max")
    return Host(
        machine=Machine(processor="any", cores=4, memory_bytes=2**34, instructions=("avx512_bf16",)),
        kernel=tmp_path / "proc",
        devices=tmp_path / "sys",
        system="Linux",
        environment={},
        installed=ALL.get,
        program=lambda name: f"/usr/bin/{name}",
        jitter=lambda: 0.02,
        home=tmp_path / "absent" / "home",
        free=lambda place: 2**40,
    )


def found(host: Host, **changed: Any) -> dict[str, Finding]:
    return {one.subject: one for one in examine(replace(host, **changed))}


def without(package: str) -> Callable[[str], str | None]:
    return {name: number for name, number in ALL.items() if name != package}.get


def test_a_good_machine_has_nothing_to_mend(host: Host) -> None:
    seen = found(host)
    assert {name for name, one in seen.items() if one.state is not FindingState.GOOD} == {"GPU"}
    assert all(not one.remedy for one in seen.values())
    assert seen["steadiness"].here == "equal work takes up to 2% longer than usual"


@pytest.mark.parametrize(
    ("changed", "subject", "words"),
    [
        ({"installed": without("torch")}, "torch", "install torch 2.11 or newer"),
        ({"installed": {**ALL, "torch": "2.9.1"}.get}, "torch", "install torch 2.11 or newer"),
        ({"installed": without("memray")}, "memray", "install memray"),
        ({"program": lambda name: None}, "C++ compiler", "install g++ or clang"),
        ({"environment": {"PYTHONDONTWRITEBYTECODE": "1"}}, "Python", "unset PYTHONDONTWRITEBYTECODE"),
        ({"environment": {"OMP_NUM_THREADS": "8"}}, "cores", "at most 4"),
        ({"environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}, "ONEDNN_MAX_CPU_ISA", "unset ONEDNN_MAX_CPU_ISA"),
        ({"jitter": lambda: 0.5}, "steadiness", "end other programs"),
        ({"free": lambda place: 2**32}, "disk", "free some space"),
    ],
)
def test_each_fault_has_a_remedy(host: Host, changed: dict[str, Any], subject: str, words: str) -> None:
    one = found(host, **changed)[subject]
    assert one.state is FindingState.MEND
    assert words in one.remedy


def test_a_build_without_cuda_beside_a_gpu_is_mended(host: Host) -> None:
    gpu = Accelerator(name="NVIDIA L4", memory_bytes=24 * 2**30)
    seen = found(host, machine=host.machine.model_copy(update={"accelerators": (gpu,)}))
    assert seen["GPU"].here == "NVIDIA L4, 24.0 GiB"
    assert "CUDA build" in seen["torch"].remedy


@pytest.mark.parametrize(
    ("largest", "state", "words"),
    [
        (None, FindingState.LIMITED, "not be asked"),
        (0, FindingState.GOOD, "independent"),
        (1_048_576, FindingState.LIMITED, "defect of torch"),
    ],
)
def test_masks_that_a_gpu_repeats_are_named(host: Host, largest: int | None, state: FindingState, words: str) -> None:
    gpu = Accelerator(name="NVIDIA H200", memory_bytes=140 * 2**30)
    machine = host.machine.model_copy(update={"accelerators": (gpu,)})
    one = found(host, machine=machine, half_repeated=lambda: largest)["dropout in 16 bits"]
    assert one.state is state
    assert words in one.means
    assert "1,048,576 elements" in (one.here or "") or largest != 1_048_576


def test_where_the_kernel_tells_nothing_the_figure_is_missing_with_its_reason(host: Host, tmp_path: Path) -> None:
    seen = found(host, kernel=tmp_path / "none", devices=tmp_path / "none", system="Darwin")
    assert seen["peak of a process"].here is None
    assert seen["peak of a process"].means.startswith("Darwin cannot reset")
    assert seen["memory"].means == "no control group limits it here"
    assert found(host, installed=without("memray"), system="Windows")["memray"].state is FindingState.LIMITED


def test_this_machine_is_examined() -> None:
    seen = found(Host(jitter=lambda: 0.0))
    assert seen["torch"].here
    assert seen["cores"].here


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("max\n", "no control group limits it here"),
        ("8589934592\n", "the limit of the control group is respected"),
        ("", "no control group limits it here"),
    ],
)
def test_a_control_group_limits_the_memory_only_with_a_number(host: Host, text: str, means: str) -> None:
    (host.devices / "fs/cgroup/memory.max").write_text(text)
    assert found(host)["memory"].means == means


def test_every_extra_of_a_user_is_named_where_it_is_missing(host: Host) -> None:
    seen = found(host, installed=lambda name: ALL["torch"] if name == "torch" else None)
    missing = {one.subject: one.means for one in seen.values() if "pip install" in one.means}
    assert missing["plotly"] == "what needs it is refused; pip install 'assay[dashboard]' adds it"
    extras = {name for means in missing.values() for name in re.findall(r"assay\[([\w-]+)\]", means)}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert extras == project["optional-dependencies"].keys() - FOR_DEVELOPERS


def clock(seconds: list[float]) -> list[float]:
    """Readings of a clock before and after pieces of work that take so long."""
    ends = list(accumulate(seconds))
    return list(chain.from_iterable((end - one, end) for one, end in zip(seconds, ends, strict=True)))


@pytest.mark.parametrize(("slow", "expected"), [(0, 0.0), (4, 0.0), (40, 2.0)])
def test_it_is_the_share_by_which_the_slowest_twentieth_is_longer(slow: int, expected: float) -> None:
    seconds = [0.001] * (400 - slow) + [0.003] * slow
    readings = iter(clock(seconds))
    assert jitter(lambda: None, readings.__next__) == pytest.approx(expected)


def test_real_work_has_a_jitter_that_is_no_less_than_nothing() -> None:
    calls = iter(repeat(None, 400))
    assert jitter(lambda: next(calls)) >= 0
    assert next(calls, "all done") == "all done"
