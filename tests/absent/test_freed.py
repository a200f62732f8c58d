"""Steps of techniques that only a GPU has are freed with their objects."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.absent import Ran, needs_cuda_build

pytestmark = [needs_cuda_build, pytest.mark.absent]
TESTS = Path(__file__).parents[1]
FREED = """
import json, sys
sys.path[:0] = sys.argv[1:]
import torch
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import resolve, resolve_run
from assay.training.loop import train_step
from support.freed import kept_after
from support.runs import ON_ONE_DEVICE, run_with, specs_of
from support.steps import build_step

def refused(name, device):
    try:
        resolve(specs_of((name,))[0]).check(configured(name, device), detect())
    except UsageError:
        return True
    return False

def configured(name, device):
    return resolve_run(run_with(*specs_of((name,))).model_copy(update={"device": device}))

def trained(name):
    step = build_step(configured(name, "cuda"))
    train_step(step, 0), train_step(step, 1)
    return step

names = [name for name in ON_ONE_DEVICE if refused(name, "cpu") and not refused(name, "cuda")]
found = {name: kept_after(lambda: trained(name), torch.device("cuda")) for name in (*names, "optimizer_in_backward")}
print(json.dumps(found))
"""


def test_steps_that_need_a_gpu_are_freed_with_their_objects(run: Callable[..., Ran]) -> None:
    found = json.loads(run(FREED, str(TESTS.parent / "src"), str(TESTS)).printed.splitlines()[-1])
    assert {"activation_offload", "cpu_offload", "cuda_graphs", "pinned_prefetch", "tf32"} < found.keys()
    assert all(left == [[], 0] for left in found.values()), found
