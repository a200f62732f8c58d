"""Calls that torch's profiler counts are those of the trace, and a step that calls others is named."""

import pytest

from assay.config.run import Spec
from assay.instruments.profiled_calls import profiled_calls
from assay.proofs.called import called_otherwise
from assay.step.program import Step
from assay.training.loop import read, take_step
from support.runs import run_with
from support.steps import build_step, observed

STACKS = (
    "fused_adamw",
    "foreach_adamw",
    "sdpa_attention",
    "bf16_mixed",
    "activation_checkpointing",
    "activation_checkpointing:every=2",
    "selective_checkpointing",
    "chunked_cross_entropy",
    "muon",
    "adafactor",
    "gradient_accumulation:micro_batches=2",
    "optimizer_in_backward",
    "sdpa_attention+bf16_mixed+activation_checkpointing",
)


def calls(step: Step) -> dict[str, int]:
    """Calls of the third step."""
    for index in range(2):
        read(step, [take_step(step, index)])
    return profiled_calls(lambda: read(step, [take_step(step, 2)]) and None)


@pytest.mark.parametrize("stack", STACKS)
def test_a_step_calls_what_its_trace_has(stack: str) -> None:
    run = run_with(*map(Spec.parse, stack.split("+")))
    assert called_otherwise(observed(run, 2)[1], calls(build_step(run))) == ""


@pytest.mark.parametrize(
    ("stack", "operator"),
    [
        ("fused_adamw", "_foreach_add_"),
        ("foreach_adamw", "_foreach_"),
        ("sdpa_attention", "_scaled_dot_product"),
        ("activation_checkpointing", "native_layer_norm"),
        ("chunked_cross_entropy", "mm"),
        ("gradient_accumulation:micro_batches=2", "native_layer_norm"),
    ],
)
def test_a_step_without_the_technique_calls_others(stack: str, operator: str) -> None:
    trace = observed(run_with(Spec.parse(stack)), 2)[1]
    assert operator in called_otherwise(trace, calls(build_step(run_with())))
