"""Bytes that the caching allocator reserves, and those in use on the device, are within the predicted intervals."""

import os
import subprocess
import sys

import pytest
import torch

from support.runs import run_with, specs_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

_FRESH = """
import sys, torch
from assay.config import ResolvedRun
from assay.training.loop import train_step
from support.steps import build_step
run = ResolvedRun.model_validate_json(sys.argv[1])
step = build_step(run)
for index in range(4):
    train_step(step, index)
torch.cuda.synchronize()
print(torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0])
"""


@pytest.mark.parametrize("stack", [(), ("sdpa_attention", "bf16_mixed"), ("activation_checkpointing",), ("lion",)])
def test_reserved_bytes_are_within_the_interval(stack: tuple[str, ...]) -> None:
    from assay.estimator import estimate
    from assay.estimator.device_memory import device_memory
    from assay.hardware import detect

    run = run_with(*specs_of(stack))
    shape = run.model.model_copy(update={"n_embd": 256, "context_length": 256, "vocab_size": 8192})
    run = run.model_copy(update={"device": "cuda", "model": shape})
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # it imports from the folder of tests
    command = [sys.executable, "-c", _FRESH, run.model_dump_json()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | path)
    reserved, in_use = map(int, said.stdout.split())
    found = device_memory(estimate(run, detect()))
    assert found is not None
    assert found.reserved is not None
    assert found.total is not None
    print(f"{stack}: reserved {reserved} of {found.reserved}, in use {in_use} of {found.total}")
    assert found.reserved.low <= reserved <= found.reserved.high
    assert in_use >= found.total.low
