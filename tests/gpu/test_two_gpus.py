"""What a CPU cannot show of techniques over ranks, between two GPUs: the losses of one, and the proofs."""

from pathlib import Path

import pytest
import torch

from parallel.on_ranks import compute
from parallel.test_equality import case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


@pytest.mark.parametrize(
    ("stack", "alone"),
    [("context_parallel+sdpa_attention", ["sdpa_attention"]), ("fully_sharded:offload=true", [])],
)
def test_losses_are_those_of_one_gpu(stack: str, alone: list[str], tmp_path: Path) -> None:
    asked = case(stack, 2, "float32")
    here = {**asked, "run": {**asked["run"], "device": "cuda"}}
    there = {**here, "run": {**here["run"], "optimizations": alone, "ranks": 1}}
    divided, whole = compute([here, there], tmp_path)
    assert divided["losses"] == pytest.approx(whole["losses"], rel=1e-4)
    assert divided["evaluation"] == pytest.approx(whole["evaluation"], rel=1e-4)
    assert all(evidence["verdict"] for rank in divided["ranks"] for evidence in rank["evidence"])
