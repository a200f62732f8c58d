"""The predicted peak and state of every optimizer, where the update is the highest moment, against what is measured."""

import pytest
import torch

from assay.api import configure
from assay.config import Spec
from assay.estimate import estimate
from assay.hardware import Machine
from assay.measure.memory import live_tensor_bytes
from assay.measure.operations import tensors_in
from assay.measure.storages import distinct_bytes
from assay.measure.tensor_peak import tensor_peak
from assay.optimizations import Unavailable, catalogue, resolve
from assay.training.loop import train_step
from estimate.built import build_step

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
CPU = torch.device("cpu")
OPTIMIZERS = [name for name, kind in catalogue().items() if "optimizer" in kind.claims]
SHAPE = ("model.n_layer=2", "model.n_embd=192", "model.context_length=32", "model.vocab_size=256")
"""Few tokens and wide matrices; in one kernel the update takes nothing, and backward is the highest."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_peak_and_the_state_are_the_measured_ones(name: str) -> None:
    run = configure("demo", [*SHAPE, "training.batch_size=2", "device=cpu"], [name])
    try:
        resolve(Spec(name=name)).check(run, MACHINE)
    except Unavailable as reason:
        pytest.skip(str(reason))
    predicted, before = estimate(run, MACHINE), live_tensor_bytes(CPU)
    step = build_step(run)
    for index in range(2):
        train_step(step, index)
    live = live_tensor_bytes(CPU) - before
    measured = tensor_peak(lambda: train_step(step, 2) and None, "cpu")
    error = predicted.timeline.peak.nbytes / (live + measured.above_start_bytes) - 1
    print(f"{name}: {predicted.timeline.peak.nbytes} bytes at {predicted.timeline.peak}, {error:+.4%}")
    assert abs(error) <= 0.005
    if name != "fused_adamw":  # two moments of its backward are nearly as high
        assert measured.instant == predicted.timeline.peak.label
    state = distinct_bytes(tensors_in(list(step.optimizer.state.values())))
    assert state == predicted.cost.optimizer_state_bytes
