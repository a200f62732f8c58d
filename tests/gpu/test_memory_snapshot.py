"""CUDA's history of a step's memory: a pickle with the events of the allocator and their stacks."""

import pickle
from pathlib import Path

import pytest
import torch

from assay.instruments.dissection import memory_snapshot, operators
from assay.training.loop import train_step
from support.runs import run_with
from support.steps import build_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_snapshot_has_the_allocations_of_the_step(tmp_path: Path) -> None:
    step = build_step(run_with().model_copy(update={"device": "cuda"}))
    train_step(step, 0)
    memory_snapshot(step, train_step, 1, tmp_path / "step.pickle")
    found = pickle.loads((tmp_path / "step.pickle").read_bytes())
    events = [one for trace in found["device_traces"] for one in trace]
    assert {"alloc", "free_completed"} <= {one["action"] for one in events}
    assert any(one["frames"] for one in events)
    assert found["segments"]


def test_the_bytes_alive_are_at_most_what_the_allocator_has_given() -> None:
    step = build_step(run_with().model_copy(update={"device": "cuda"}))
    train_step(step, 0)
    torch.cuda.reset_peak_memory_stats()
    found = operators(step, train_step, 1)
    assert 0 < max(one.alive_bytes or 0 for one in found) <= torch.cuda.max_memory_allocated()
