"""Accumulation: the same gradients from parts, the same tokens a step."""

import pytest
import torch

from assay.config import Run, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check
from support.runs import run_with, without
from support.steps import build_step, micro_batches, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def accumulation(parts: int) -> Spec:
    return Spec(name="gradient_accumulation", fields={"micro_batches": parts})


def gradients(run: Run) -> dict[str, torch.Tensor]:
    step = build_step(run)
    step.program.gradients(step, micro_batches(step), run.tokens_per_step)
    return {name: parameter.grad for name, parameter in step.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_equal_those_of_the_whole_batch(parts: int) -> None:
    whole, cut = gradients(run_with()), gradients(run_with(accumulation(parts)))
    assert whole.keys() == cut.keys()
    for name, gradient in whole.items():
        if name.endswith("qkv.bias"):
            continue  # A third of it, the keys', has a true gradient of zero: rounding is all that there is.
        assert (cut[name] - gradient).norm() <= 5e-6 * gradient.norm(), name


def test_the_tokens_of_a_step_stay() -> None:
    run = run_with(accumulation(4))
    trace = traced(run)
    assert (trace.forwards, trace.batch.targets) == (4, traced(without(run)).batch.targets)


def test_parts_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(Conflict, match="batch_size=4 cannot be cut into gradient_accumulation:micro_batches=3"):
        check(run_with(accumulation(3)), CPU)
