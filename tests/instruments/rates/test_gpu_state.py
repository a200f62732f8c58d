"""Samples of a GPU by a stand-in for `nvidia-smi`."""

import time
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


def prints(tool: Path, *clocks: int, reasons: int = 4) -> None:
    """Let the stand-in print one sample per clock at once, and then wait."""
    lines = "".join(f"echo '{LINE.format(clock=one, reasons=reasons)}'\n" for one in clocks)
    tool.write_text(f'#!/bin/sh\necho "$@" > {tool}.asked\n{lines}exec sleep 60\n')
    tool.chmod(0o755)


def sampled(sampler: GpuSampler, seconds: float = 0.2) -> GpuState | None:
    sampler.begin()
    time.sleep(seconds)
    sampler.end()
    return sampler.state()


def test_samples_are_summed_up_without_the_first(tool: Path) -> None:
    prints(tool, 300, 1980, 1900)
    sampler = GpuSampler(CUDA)
    found = sampled(sampler)
    assert found == GpuState(clock_hertz=1.94e9, watts=512.25, celsius=61.0)
    assert "--id=GPU-abc" in Path(f"{tool}.asked").read_text()
    assert sampler.state() is None  # they count once


def test_pieces_of_a_block_are_summed_up_together(tool: Path) -> None:
    prints(tool, 300, 2000, 1000)
    sampler = GpuSampler(CUDA)
    sampler.begin()
    time.sleep(0.2)
    sampler.end()
    prints(tool, 300, 600)
    found = sampled(sampler)
    assert found is not None
    assert found.clock_hertz == pytest.approx(1.2e9)


def test_reasons_beyond_the_power_limit_are_named(tool: Path) -> None:
    prints(tool, 300, 1200, reasons=0x4 | 0x40)
    found = sampled(GpuSampler(CUDA))
    assert found is not None
    assert found.slowed_by == ("temperature, by hardware",)


def test_a_tool_that_prints_nothing_is_asked_once(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_state, "_FIRST_SECONDS", 0.05)
    prints(tool)
    sampler = GpuSampler(CUDA)
    assert sampled(sampler, 0.0) is None
    prints(tool, 300, 1980)
    assert sampled(sampler) is None


def test_a_device_that_is_not_told_or_no_gpu_has_no_state(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples_of("[N/A], [N/A], 40, [N/A]\nNo devices were found\n\n") == []
    prints(tool, 300, 1980)
    assert sampled(GpuSampler(torch.device("cpu")), 0.0) is None
    monkeypatch.setenv("PATH", "")
    assert sampled(GpuSampler(CUDA), 0.0) is None


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
