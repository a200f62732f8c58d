"""Predicted peaks against measured ones."""

from collections.abc import Mapping, Sequence

import torch

from assay.api import configure
from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.training.loop import train_step
from support.steps import CPU, build_step, forget_tables, measured_peak

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


def assert_exact(model: Mapping[str, object], batch_size: int, stack: str) -> None:
    """The peak of the model's step is predicted up to the numbers that torch wraps in tensors."""
    run = Run(
        model=ModelConfig.model_validate(model),
        training=TrainingConfig(batch_size=batch_size, gradient_clip=0),
        device="cpu",
        optimizations=tuple(Spec.parse(one) for one in stack.split("+") if one),
    )
    predicted = estimate(run, MACHINE).timeline.peak
    _, measured, instant = measured_peak(run)
    print(f"{stack}: {predicted} {predicted.nbytes}, {instant} {measured}")
    assert abs(predicted.nbytes - measured) <= WRAPPED_NUMBERS


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]


def _own_bytes(named: Sequence[tuple[str, torch.nn.Parameter]]) -> int:
    return sum(parameter.nbytes for _, parameter in named)
