"""What a CPU cannot show of techniques over ranks, between two GPUs: the losses of one, the proofs, and the bytes.

Not run yet.
"""

from pathlib import Path

import pytest
import torch

from assay.config import validate
from assay.estimator import estimate
from assay.hardware import detect
from support.ranks import compute
from support.ranks.equality import case
from support.ranks.ledger import handed, payloads

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


MODEL = {"n_layer": 4, "n_head": 4, "n_embd": 256, "context_length": 256, "vocab_size": 512}
"""Of tensors that are many times what an allocator rounds up to."""


@pytest.mark.parametrize(
    ("stack", "alone"),
    [("context_parallel+sdpa_attention", ["sdpa_attention"]), ("fully_sharded:offload=true", [])],
)
def test_losses_are_those_of_one_gpu(stack: str, alone: list[str], tmp_path: Path) -> None:
    asked = case(stack, 2, "float32")
    here = {**asked, "run": {**asked["run"], "model": MODEL, "device": "cuda"}}
    there = {**here, "run": {**here["run"], "optimizations": alone, "ranks": 1}}
    divided, whole = compute([here, there], tmp_path)
    assert divided["losses"] == pytest.approx(whole["losses"], rel=1e-4)
    assert divided["evaluation"] == pytest.approx(whole["evaluation"], rel=1e-4)
    assert all(evidence["verdict"] for rank in divided["ranks"] for evidence in rank["evidence"])


@pytest.mark.parametrize(
    "stack",
    [
        "context_parallel+sdpa_attention",
        "context_parallel+sdpa_attention+bf16_mixed",
        "fully_sharded:offload=true",
        "fully_sharded:offload=true,mixed_precision=true",
    ],
)
def test_payload_and_memory_of_a_rank_are_predicted(stack: str, tmp_path: Path) -> None:
    asked = case(stack, 2, "float32")
    run = {**asked["run"], "model": MODEL, "device": "cuda"}
    (found,) = compute([{**asked, "run": run, "steps": 2, "peaks": True}], tmp_path)
    for rank, measured in enumerate(found["ranks"]):
        said = estimate(validate(run), detect(), rank)
        assert handed(measured) == payloads(said)
        assert measured["trace"]["memory"]["parameter_bytes"] == said.cost.parameter_bytes
        assert measured["trace"]["memory"]["optimizer_state_bytes"] == said.cost.optimizer_state_bytes
        assert measured["peak"] == pytest.approx(said.timeline.peak.nbytes, rel=0.03)
