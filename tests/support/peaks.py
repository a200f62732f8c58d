"""The demonstration's predicted peak against the memory pass."""

from collections.abc import Sequence

import torch

from assay.api import configure
from assay.estimator import estimate
from assay.hardware import Machine
from assay.measure.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.training.loop import train_step
from support.steps import CPU, build_step, forget_tables

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
WRAPPED_NUMBERS = 128
"""Bytes of numbers that torch wraps in tensors on the way."""


def assert_peak(stack: str) -> None:
    """The peak of the demonstration with the stack, and its instant, are those that were predicted."""
    run = configure("demo", ["model.vocab_size=256", "device=cpu"], [stack] if stack else [])
    predicted = estimate(run, MACHINE).timeline.peak
    forget_tables()
    step = build_step(run)
    before = live_tensor_bytes(CPU) - _own_bytes(step.named_parameters())
    for index in range(2):
        train_step(step, index)
    # Whatever other tests left alive is not this step's.
    measured = memory_pass(CPU, lambda: _train(step), live_tensor_bytes(CPU) - before)
    error = predicted.nbytes / measured.tensors_peak_bytes - 1
    print(f"{stack or 'baseline'}: predicted {predicted.nbytes}, measured {measured.tensors_peak_bytes}, {error:+.4%}")
    assert abs(predicted.nbytes - measured.tensors_peak_bytes) <= WRAPPED_NUMBERS
    assert measured.tensors_peak_instant == predicted.label


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]


def _own_bytes(named: Sequence[tuple[str, torch.nn.Parameter]]) -> int:
    return sum(parameter.nbytes for _, parameter in named)
