"""The roofline of a step: peaks where nothing else is known, and measured operators where they are."""

import pytest

from assay.config import Spec
from assay.cost import Cost
from assay.estimator import estimate
from assay.estimator.timing.step_time import OPERATORS_FACTOR, PEAKS_FACTOR, error_factor, step_seconds
from assay.hardware import Rates
from assay.hardware.detect import CALLING, MOVING, OperatorSpeed, flash_key, key_of
from assay.optimizations import resolve_run
from support.advice import HERE, RATES, small


def ledger(*stack: str) -> Cost:
    specs = tuple(Spec(name=name) for name in stack)
    return estimate(resolve_run(small().model_copy(update={"optimizations": specs})), HERE).cost


def constant(forward: float, backward: float) -> OperatorSpeed:
    return OperatorSpeed(at=(1.0,), forward=(forward,), backward=(backward,))


PEAKS = {
    CALLING: constant(1 / RATES.launch_seconds, 1 / RATES.backward_launch_seconds),
    MOVING: constant(RATES.bandwidth_bytes, RATES.bandwidth_bytes),
    **{key_of("aten.mm", dtype): constant(rate, rate) for dtype, rate in RATES.matmul_flops.items()},
}
"""Speeds of operators that are the peaks."""


def rated(**changes: OperatorSpeed) -> Rates:
    return RATES.model_copy(update={"operators": PEAKS | changes})


def seconds(cost: Cost, rates: Rates) -> float:
    found = step_seconds(cost, rates)
    assert found is not None
    return found


@pytest.mark.parametrize("stack", [(), ("bf16_mixed",), ("sdpa_attention", "activation_checkpointing")])
def test_operators_at_their_peaks_leave_the_roofline_of_peaks(stack: tuple[str, ...]) -> None:
    cost = ledger(*stack)
    assert seconds(cost, rated()) == pytest.approx(seconds(cost, RATES), rel=1e-12)


def test_a_slow_exponential_adds_its_bytes_over_its_speed() -> None:
    cost = ledger()
    gelus = [one for one in cost.tape if one.name == "aten.gelu"]
    moved = sum(cost.sizes[name] for one in gelus for name in (*one.inputs, *(each.name for each in one.outputs)))
    slow = rated(**{key_of("aten.gelu", "float32"): constant(1e8, 5e7)})
    more = moved / 1e8 + 2 * moved / 5e7 - 3 * moved / RATES.bandwidth_bytes
    assert seconds(cost, slow) - seconds(cost, rated()) == pytest.approx(more)


def test_fused_attention_has_the_speed_of_its_length_and_depth() -> None:
    cost = ledger("sdpa_attention")
    flops = sum(one.flops.forward for one in cost.tape if "flash" in one.name)
    speeds = OperatorSpeed(at=(32, 64), forward=(1e6, 1.0), backward=(1e7, 1.0))
    found = seconds(cost, rated(**{flash_key(16, "float32"): speeds}))
    assert found == pytest.approx(flops / 1e6 + 2.5 * flops / 1e7, rel=0.01)


def test_a_compiled_chain_is_not_slowed_by_the_operators_that_it_replaces() -> None:
    cost = ledger("compile")
    slow = rated(**{key_of("aten.gelu", "float32"): constant(1e3, 1e3)})
    assert seconds(cost, slow) == seconds(cost, rated())


def test_calls_count_for_every_operator() -> None:
    cost = ledger()
    calls = seconds(cost, rated(**{CALLING: constant(1e3, 1e3)})) - seconds(cost, rated())
    counted = sum(any(tensor.view_of is None for tensor in one.outputs) for one in cost.tape)
    assert calls == pytest.approx(counted * (2e-3 - RATES.launch_seconds - RATES.backward_launch_seconds))


def test_the_error_of_a_roofline_is_known_on_a_cpu_and_smaller_with_measured_operators() -> None:
    operators = RATES.model_copy(update={"operators": PEAKS})
    assert (error_factor(operators), error_factor(RATES)) == (OPERATORS_FACTOR, PEAKS_FACTOR)
    assert error_factor(RATES.model_copy(update={"device": "cuda"})) is None
