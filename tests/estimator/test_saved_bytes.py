"""Bytes kept for backward are predicted to the byte: every optimization alone, and every pair."""

from itertools import combinations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks

from assay.config import Run
from assay.config.run import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.step.program import Step
from assay.training.gradients import summed_loss
from estimator.built import build_step, micro_batches
from estimator.drawn import FOUR, runs

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
STACKS = [(), *((one,) for one in FOUR), *combinations(FOUR, 2), FOUR]


def saved_bytes(step: Step) -> int:
    """Slow and plain: hold every storage that autograd packs, so that no address is used twice."""
    parameters = {parameter.untyped_storage().data_ptr() for _, parameter in step.named_parameters()}
    held: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            held[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        summed_loss(step, micro_batches(step)[0])
    return sum(storage.nbytes() for storage in held.values())


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(spec.name for spec in stack) or "baseline")
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_saved_bytes_equal_the_measured_ones(stack: tuple[Spec, ...], data: st.DataObject) -> None:
    fused = any(spec.name == "sdpa_attention" for spec in stack)
    run: Run = data.draw(runs(stack, dropout=not fused))
    assert estimate(run, MACHINE).timeline.saved_bytes == saved_bytes(build_step(run))
