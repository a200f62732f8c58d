"""Bytes kept for backward by a mixture of experts are predicted to the byte, wherever its tokens go."""

from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.api import configure
from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.cost import active_parameter_count, parameter_count
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.step_trace import StepTracer
from assay.training.loop import train_step
from support.peaks import assert_exact
from support.runs import FOUR, drawn_runs
from support.steps import build_step, measured_peak, saved_bytes

SHAPE = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "context_length": 16,
    "vocab_size": 61,
    "n_hidden": 24,
    "n_expert": 4,
}
MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
STACKS = [(), *((one,) for one in FOUR), *combinations(FOUR, 2), FOUR]


@st.composite
def mixture_runs(draw: st.DrawFn, stack: tuple[Spec, ...], *, capacity: bool) -> Run:
    """Any run with experts, whose widths a grouped product takes or does not."""
    run = draw(drawn_runs(stack, dropout=not any(spec.name == "sdpa_attention" for spec in stack)))
    experts = draw(st.integers(1, 5))
    fields = {
        "n_hidden": draw(st.sampled_from([8, 16, 20, None])),
        "n_expert": experts,
        "n_expert_active": draw(st.integers(1, experts)),
        "router_loss": draw(st.sampled_from([0.0, 0.01])),
        "expert_capacity": draw(st.sampled_from([0.5, 1.0, 1.25])) if capacity else None,
    }
    model = ModelConfig.model_validate({**run.model.model_dump(), **fields})
    return run.model_copy(update={"model": model})


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(spec.name for spec in stack) or "baseline")
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_saved_bytes_equal_the_measured_ones(stack: tuple[Spec, ...], data: st.DataObject) -> None:
    run: Run = data.draw(mixture_runs(stack, capacity=False))
    assert estimate(run, MACHINE).timeline.saved_bytes == saved_bytes(build_step(run))


@pytest.mark.parametrize("stack", [(), *((one,) for one in FOUR)], ids=str)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_with_a_capacity_too(stack: tuple[Spec, ...], data: st.DataObject) -> None:
    run: Run = data.draw(mixture_runs(stack, capacity=True))
    assert estimate(run, MACHINE).timeline.saved_bytes == saved_bytes(build_step(run))


def traced_flops(run: Run) -> int:
    step = build_step(run)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 0)
    return sum(operation.flops for operation in tracer.trace(record.loss, record.tokens).operations)


@pytest.mark.parametrize("fields", [{}, {"activation": "swiglu"}, {"n_hidden": 20}, {"expert_capacity": 1.25}], ids=str)
@pytest.mark.parametrize("stack", [(), FOUR[1:2], FOUR[2:3]], ids=["baseline", "bf16", "checkpointing"])
def test_flops_are_those_of_the_active_experts(stack: tuple[Spec, ...], fields: dict[str, object]) -> None:
    model = ModelConfig.model_validate({**SHAPE, **fields})
    run = Run(model=model, training=TrainingConfig(batch_size=2), device="cpu", optimizations=stack)
    assert estimate(run, MACHINE).step_flops == traced_flops(run)


def test_more_experts_add_parameters_and_only_the_router_adds_work() -> None:
    few, many = (ModelConfig.model_validate({**SHAPE, "n_expert": count}) for count in (4, 8))
    expert, router = 2 * 16 * 24, 16
    assert parameter_count(many) - parameter_count(few) == 2 * 4 * (expert + router)
    assert active_parameter_count(many) - active_parameter_count(few) == 2 * 4 * router
    dense = ModelConfig.model_validate({**SHAPE, "n_expert": None})
    assert active_parameter_count(dense) == parameter_count(dense)
    runs_of = [Run(model=one, training=TrainingConfig(batch_size=2), device="cpu") for one in (few, many)]
    less, more = (estimate(run, MACHINE).model_flops for run in runs_of)
    assert more - less == 6 * 2 * 4 * router * (2 * 16)
    roomy = estimate(runs_of[0].model_copy(update={"model": few.model_copy(update={"expert_capacity": 2.0})}), MACHINE)
    assert roomy.model_flops == less < roomy.step_flops


@pytest.mark.parametrize("stack", ["", "bf16_mixed", "activation_checkpointing"])
@pytest.mark.parametrize(
    "fields",
    [["n_expert_active=2"], pytest.param(["n_expert_active=1", "activation=swiglu"], marks=pytest.mark.slow)],
    ids=str,
)
def test_the_peak_is_the_measured_one(stack: str, fields: list[str]) -> None:
    keys = [f"model.{field}" for field in ("n_expert=4", "vocab_size=256", *fields)]
    run = configure("demo", [*keys, "device=cpu"], [stack] if stack else [])
    predicted = estimate(run, MACHINE).timeline.peak
    _, measured, instant = measured_peak(run)
    assert abs(predicted.nbytes - measured) <= 128
    assert instant == predicted.label


NARROW = {"n_layer": 4, "n_head": 1, "n_embd": 16, "context_length": 17, "vocab_size": 3, "norm": "rms", "bias": True}
ONE_EXPERT = {"n_expert": 1, "n_expert_active": 1, "expert_capacity": 0.5}


@pytest.mark.parametrize("stack", ["", "bf16_mixed", "optimizer_in_backward", "gradient_accumulation:micro_batches=2"])
@pytest.mark.parametrize(
    "fields",
    [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in ({"n_hidden": 1}, {"n_hidden": 96, "n_expert": 3}))],
    ids=str,
)
def test_the_gradient_of_a_transposed_stack_is_copied(stack: str, fields: dict[str, object]) -> None:
    assert_exact({**NARROW, **ONE_EXPERT, **fields}, 2 if "accumulation" in stack else 1, stack)


VERY_NARROW_EXPERTS = {
    "n_layer": 1,
    "n_head": 8,
    "n_kv_head": 2,
    "n_embd": 128,
    "context_length": 65,
    "n_hidden": 1,
    "norm": "layer",
    "activation": "swiglu",
    "n_expert": 4,
    "n_expert_active": 1,
    "dropout": 0.1,
    "qk_norm": True,
}


@pytest.mark.parametrize("precision", ["", "fp16_mixed", "bf16_mixed"])
@pytest.mark.parametrize("recomputed", ["", "activation_checkpointing"])
def test_gradients_of_the_gated_sum_are_cast_and_summed_by_the_engine(precision: str, recomputed: str) -> None:
    stack = "+".join(one for one in ("lion", precision, recomputed) if one)
    assert_exact({**NARROW, **VERY_NARROW_EXPERTS}, 6, stack)
