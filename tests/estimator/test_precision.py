"""What a precision holds is predicted: saved bytes, weights, state exactly, the peak within 5 %; alone and in pairs."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.api import configure
from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.training.loop import train_step
from support.runs import FOUR, drawn_runs, run_with
from support.steps import CPU, build_step, saved_bytes, traced

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
PRECISIONS = ("bf16_full", "fp16_full", "fp16_mixed")
BESIDE = [(), *((one,) for one in FOUR if one.name != "bf16_mixed")]
STACKS = [(*beside, Spec(name=name)) for name in PRECISIONS for beside in BESIDE]


def words(stack: tuple[Spec, ...]) -> str:
    return "+".join(spec.name for spec in stack)


@pytest.mark.parametrize("stack", STACKS, ids=words)
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_saved_bytes_equal_the_measured_ones(stack: tuple[Spec, ...], data: st.DataObject) -> None:
    fused = any(spec.name == "sdpa_attention" for spec in stack)
    run: Run = data.draw(drawn_runs(stack, dropout=not fused))
    assert estimate(run, MACHINE).timeline.saved_bytes == saved_bytes(build_step(run))


@pytest.mark.parametrize("stack", STACKS, ids=words)
def test_weights_gradients_and_state_are_predicted_to_the_byte(stack: tuple[Spec, ...]) -> None:
    run = run_with(*stack)
    predicted, trace = estimate(run, MACHINE), traced(run)
    assert predicted.cost.parameter_bytes == trace.memory.parameter_bytes
    assert predicted.gradient_bytes == trace.memory.gradient_bytes
    assert predicted.cost.optimizer_state_bytes == trace.memory.optimizer_state_bytes


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["", "sdpa_attention+activation_checkpointing+"])
@pytest.mark.parametrize("name", PRECISIONS)
def test_the_peak_is_within_five_per_cent(name: str, beside: str) -> None:
    run = configure("demo", ["model.vocab_size=256", "device=cpu"], [beside + name])
    predicted = estimate(run, MACHINE).timeline.peak
    step = build_step(run)
    before = live_tensor_bytes(CPU) - sum(parameter.nbytes for _, parameter in step.named_parameters())
    for index in range(2):
        train_step(step, index)
    measured = memory_pass(CPU, lambda: _train(step), live_tensor_bytes(CPU) - before)
    error = predicted.nbytes / measured.tensors_peak_bytes - 1
    print(f"{beside + name}: predicted {predicted}, measured {measured.tensors_peak_instant}, {error:+.4%}")
    assert abs(error) <= 0.05


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]
