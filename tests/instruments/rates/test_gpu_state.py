"""Samples of a GPU by a stand-in for `nvidia-smi`."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.instruments.rates import gpu_state
from assay.instruments.rates.gpu_state import GpuSampler, samples_of
from assay.records.timing import Block, GpuState

CUDA = torch.device("cuda")
LINE = "{clock}, 512.25, 61, 0x{reasons:016x}"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of a stand-in for `nvidia-smi`, which is found first."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    return tmp_path / "nvidia-smi"


def prints(tool: Path, *clocks: int) -> None:
    """Let the stand-in print one sample per clock at once, and from then on those of `samples`."""
    Path(f"{tool}.lines").write_text("")
    samples(tool, *clocks)
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tool}.asked\nexec tail -n +1 -f {tool}.lines\n')
    tool.chmod(0o755)


def samples(tool: Path, *clocks: int, reasons: int = 4) -> None:
    """Let the stand-in print further samples."""
    with Path(f"{tool}.lines").open("a") as lines:
        lines.writelines(f"{LINE.format(clock=one, reasons=reasons)}\n" for one in clocks)
    time.sleep(0.3 if clocks else 0.0)


@pytest.fixture
def sampler() -> Iterator[GpuSampler]:
    with closing(GpuSampler(CUDA)) as made:
        yield made


def test_samples_are_summed_up_without_the_first(tool: Path, sampler: GpuSampler) -> None:
    prints(tool, 300)
    sampler.begin()
    samples(tool, 1980, 1900)
    sampler.end()
    assert sampler.state() == GpuState(clock_hertz=1.94e9, watts=512.25, celsius=61.0)
    assert "--id=GPU-abc" in Path(f"{tool}.asked").read_text()
    assert sampler.state() is None  # they count once


def test_pieces_of_a_block_are_summed_up_together_by_one_process(tool: Path, sampler: GpuSampler) -> None:
    prints(tool, 300)
    for inside in (2000, 1000, 600):
        sampler.begin()
        samples(tool, inside)
        sampler.end()
        samples(tool, 50)  # between two pieces
    found = sampler.state()
    assert found is not None
    assert found.clock_hertz == pytest.approx(1.2e9)
    assert len(Path(f"{tool}.asked").read_text().splitlines()) == 1


def test_a_first_block_without_a_sample_has_the_one_before(tool: Path, sampler: GpuSampler) -> None:
    prints(tool, 300)
    for expected in (3e8, None):
        sampler.begin()
        sampler.end()
        found = sampler.state()
        assert (None if found is None else found.clock_hertz) == expected


def test_reasons_beyond_the_power_limit_are_named(tool: Path, sampler: GpuSampler) -> None:
    prints(tool, 300)
    sampler.begin()
    samples(tool, 1200, reasons=0x4 | 0x40)
    sampler.end()
    found = sampler.state()
    assert found is not None
    assert found.slowed_by == ("temperature, by hardware",)


def test_a_tool_that_prints_nothing_is_asked_once(
    tool: Path, sampler: GpuSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_state, "_FIRST_SECONDS", 0.05)
    prints(tool)
    for _ in range(2):
        sampler.begin()
        sampler.end()
        assert sampler.state() is None
        prints(tool, 300, 1980)
    assert len(Path(f"{tool}.asked").read_text().splitlines()) <= 1


def test_a_device_that_is_not_told_or_no_gpu_has_no_state(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples_of("[N/A], [N/A], 40, [N/A]\nNo devices were found\n\n") == []
    prints(tool, 300, 1980)
    for device, path in ((torch.device("cpu"), str(tool.parent)), (CUDA, "")):
        monkeypatch.setenv("PATH", path)
        sampler = GpuSampler(device)
        sampler.begin()
        sampler.end()
        assert sampler.state() is None


def test_a_closed_sampler_leaves_no_process(tool: Path) -> None:
    prints(tool, 300)
    with closing(GpuSampler(CUDA)) as sampler:
        sampler.begin()
        process = sampler._process
    assert process is not None
    assert process.returncode is not None


def block(clock: float, usual: float | None, *slowed_by: str) -> Block:
    state = GpuState(clock_hertz=clock, watts=500.0, celsius=60.0, slowed_by=slowed_by)
    return Block(steps=1, seconds=1.0, median_step_seconds=1.0, tokens=1, gpu=state, usual_gpu_clock_hertz=usual)


def test_a_block_whose_clock_fell_is_disturbed() -> None:
    assert not block(1.90e9, None).disturbed
    assert not block(1.90e9, 1.98e9).disturbed
    assert block(1.85e9, 1.98e9).disturbed
    assert block(1.98e9, 1.98e9, "power brake").disturbed
    again = Block.of(block(1.85e9, 1.98e9).model_dump())
    assert again.disturbed
