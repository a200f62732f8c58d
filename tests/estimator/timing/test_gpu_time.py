"""Predicted times of steps on absent GPUs: their margins, and where there is none."""

import pytest

from assay import api
from assay.estimator import Estimate, estimate
from assay.estimator.timing import step_time
from assay.estimator.timing.gpu_time import HOST_MARGIN, MARGIN, OTHER_MARGIN, gpu_time, pass_work, update_work
from assay.hardware.devices import absent_machine
from support.advice import RATES


def found(device: str, *stack: str, preset: str = "gpt2-124m") -> Estimate:
    return estimate(api.configure(preset, ["model.vocab_size=256", "device=cuda"], *stack), absent_machine(device))


@pytest.mark.parametrize(
    ("device", "stack", "preset", "margin"),
    [
        ("h200", "sdpa_attention", "gpt2-124m", MARGIN),
        ("h200", "bf16_mixed+sdpa_attention", "shakespeare-char", HOST_MARGIN),
        ("h200", "bf16_mixed+sdpa_attention+compile", "shakespeare-char", MARGIN),
        ("a100", "sdpa_attention", "gpt2-124m", OTHER_MARGIN),
    ],
)
def test_a_time_has_the_margin_of_its_device_and_of_what_bounds_it(
    device: str, stack: str, preset: str, margin: float
) -> None:
    one = found(device, stack, preset=preset)
    time = one.step_time
    assert time is not None
    assert (time.margin, time.factor) == (margin, None)
    assert time.apart is not None
    assert time.seconds >= 0.99 * max(time.apart)
    # No step is faster than the roofline of its datasheet's peaks.
    assert one.roofline_seconds is not None
    assert time.seconds > one.roofline_seconds


def test_a_mixture_of_experts_has_the_wide_margin() -> None:
    one = estimate(
        api.configure("demo", ["model.vocab_size=256", "model.n_expert=4", "device=cuda"]), absent_machine("h200")
    )
    assert one.step_time is not None
    assert one.step_time.margin == OTHER_MARGIN


@pytest.mark.parametrize("stack", ["activation_offload", "cpu_offload"])
def test_a_step_that_copies_to_the_host_has_a_roofline_only(stack: str) -> None:
    time = found("h200", stack).step_time
    assert time is not None
    assert (time.margin, time.apart) == (None, None)


def test_a_dtype_without_a_peak_is_not_predicted() -> None:
    assert found("t4", "sdpa_attention").step_time is not None
    cost = found("h200", "bf16_mixed").cost
    assert gpu_time(cost, absent_machine("t4").rates["cuda"]) is None


def test_measured_rates_have_a_roofline() -> None:
    assert gpu_time(found("h200").cost, RATES.model_copy(update={"device": "cuda"})) is None


RUN = api.configure("gpt2-124m", ["model.vocab_size=256", "device=cuda"])


def test_the_sums_of_kernels_are_those_of_the_played_step() -> None:
    machine = absent_machine("h200")
    found, rates = estimate(RUN, machine), machine.rates["cuda"]
    passing, updating = pass_work(found.cost, rates), update_work(found.cost, rates)
    assert passing is not None
    whole = passing.plus(updating)
    assert found.step_time is not None
    assert found.step_time.apart == pytest.approx((whole.launching, whole.working))
    assert whole.seconds(rates) == pytest.approx(found.step_time.seconds, rel=0.05)


def test_measured_rates_give_the_roofline() -> None:
    cost, rates = estimate(RUN, absent_machine("h200")).cost, RATES.model_copy(update={"device": "cuda"})
    assert pass_work(cost, rates) == step_time.pass_work(cost, rates)
    assert update_work(cost, rates) == step_time.update_work(cost, rates)


def test_a_dtype_without_a_peak_has_no_work() -> None:
    cost = estimate(api.configure("gpt2-124m", ["device=cuda"], "bf16_mixed"), absent_machine("h200")).cost
    assert pass_work(cost, absent_machine("t4").rates["cuda"]) is None
