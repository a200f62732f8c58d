"""Predicted peaks against measured ones."""

from collections.abc import Mapping

from assay.api import configure
from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from support.steps import measured_peak

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)


def assert_peak(stack: str) -> None:
    """The peak of the demonstration with the stack, and its instant, are those that were predicted."""
    run = configure("demo", ["model.vocab_size=256", "device=cpu"], [stack] if stack else [])
    predicted = estimate(run, MACHINE).timeline.peak
    _, measured, instant = measured_peak(run)
    assert (predicted.nbytes, predicted.label) == (measured, instant)


def assert_exact(model: Mapping[str, object], batch_size: int, stack: str, besides: int = 0) -> None:
    """The peak of the model's step is predicted to the byte, except for `besides` bytes."""
    run = Run(
        model=ModelConfig.model_validate(model),
        training=TrainingConfig(batch_size=batch_size, gradient_clip=0),
        device="cpu",
        optimizations=tuple(Spec.parse(one) for one in stack.split("+") if one),
    )
    predicted = estimate(run, MACHINE).timeline.peak
    _, measured, instant = measured_peak(run)
    assert abs(predicted.nbytes - measured) <= besides, f"{stack}: {predicted} {predicted.nbytes}, {instant} {measured}"
