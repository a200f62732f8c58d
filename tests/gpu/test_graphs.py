"""Replayed steps on a GPU: the launched ones to the bit, with noise and micro-batches; their memory is counted."""

import pytest
import torch

from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import detect
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.step.graphs import StepGraphs
from assay.training.loop import train_step
from support.runs import SHAPE, run_with, specs_of
from support.steps import build_step, losses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
WIDE = SHAPE.model_copy(update={"n_embd": 512, "n_head": 8, "context_length": 512, "vocab_size": 8192})


def on_cuda(*names: str, dropout: float = 0.0) -> Run:
    model = SHAPE.model_copy(update={"dropout": dropout})
    return run_with(*specs_of(names), model=model).model_copy(update={"device": "cuda"})


@pytest.mark.device_values("losses are compared")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    "beside",
    [(), ("gradient_accumulation",), ("sdpa_attention", "bf16_mixed", "fused_adamw"), ("deferred_metrics",)],
    ids=lambda names: "+".join(names) or "alone",
)
def test_losses_are_those_of_launched_kernels_to_the_bit(beside: tuple[str, ...], dropout: float) -> None:
    replayed = losses(on_cuda(*beside, "cuda_graphs", dropout=dropout), 6)
    assert replayed == losses(on_cuda(*beside, dropout=dropout), 6)


@pytest.mark.device_values("losses are compared")
def test_blocks_that_run_again_are_recorded_too() -> None:
    names = ("activation_checkpointing", "cuda_graphs")
    assert losses(on_cuda(*names), 6) == losses(on_cuda(*names[:1]), 6)


def test_memory_that_graphs_keep_is_predicted_and_measured() -> None:
    run = run_with(Spec(name="cuda_graphs"), model=WIDE).model_copy(update={"device": "cuda"})
    others = live_tensor_bytes(torch.device("cuda"))  # of tests before, in the same process
    step = build_step(run)
    for index in range(3):
        train_step(step, index)
    graphs = step.program.witness(StepGraphs)
    assert graphs is not None
    idle = graphs.idle_bytes()
    measured = memory_pass(torch.device("cuda"), lambda: _train(step), 0, idle_bytes=idle)
    assert idle > 0
    # The pool comes in segments of 2 and 20 MiB.
    peak = measured.tensors_peak_bytes - others
    assert estimate(run, detect()).timeline.peak.nbytes == pytest.approx(peak, rel=0.1)


def test_workspaces_of_captures_lie_in_the_pool_of_the_graphs_that_are_replayed() -> None:
    """A GPU ended with an illegal access: a workspace was in an earlier capture's pool, which went with its graphs."""
    step = build_step(on_cuda("cuda_graphs"))
    for index in range(3):
        train_step(step, index)
    graphs = step.program.witness(StepGraphs)
    assert graphs is not None
    with graphs.observed():  # captures anew
        train_step(step, 3)
    before = _pools()
    torch._C._cuda_clearCublasWorkspaces()
    of_workspaces = {before[address] for address in before.keys() - _pools().keys()} - {(0, 0)}
    assert of_workspaces == {tuple(graphs._pool)}


def _pools() -> dict[int, tuple[int, int]]:
    """Pool of each block that is alive, by its address."""
    return {
        block["address"]: tuple(segment["segment_pool_id"])
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }


def _train(step: object) -> None:
    train_step(step, 3)  # type: ignore[arg-type]
