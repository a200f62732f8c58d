"""Mixed precision: every product in bfloat16, everything else as it was."""

import pytest

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Unavailable, resolve
from support.runs import run_with
from support.steps import traced

BF16 = Spec(name="bf16_mixed")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def test_all_flops_move_to_bfloat16() -> None:
    plain, mixed = (estimate(run_with(*specs), CPU) for specs in ((), (BF16,)))
    assert mixed.flops == {"bfloat16": plain.flops["float32"]}


def test_weights_gradients_and_state_stay_in_float32() -> None:
    plain, mixed = (traced(run_with(*specs)) for specs in ((), (BF16,)))
    assert mixed.memory.parameter_bytes == plain.memory.parameter_bytes
    assert mixed.memory.gradient_bytes == plain.memory.gradient_bytes
    assert mixed.memory.optimizer_state_bytes == plain.memory.optimizer_state_bytes


def test_autocast_that_is_off_in_backward_only_does_not_pass() -> None:
    run = run_with(BF16)
    trace = traced(run)
    half = tuple(
        one.model_copy(update={"dtype": "float32"}) if one.phase == "backward" else one for one in trace.operations
    )
    assert not resolve(BF16).verify(trace.model_copy(update={"operations": half}), run).verdict


def test_weights_in_16_bits_are_no_proof() -> None:
    run = run_with(BF16)
    evidence = resolve(BF16).verify(traced(run_with(Spec(name="bf16_full"))), run)
    assert "but 52 of 52 weights are stored in 16 bits" in evidence.observed
    assert not evidence.verdict


def test_a_gpu_before_ampere_is_refused() -> None:
    old = Accelerator(name="Tesla T4", memory_bytes=2**34, compute_capability=(7, 5))
    machine = CPU.model_copy(update={"accelerators": (old,)})
    with pytest.raises(Unavailable, match="Tesla T4 is older"):
        resolve(BF16).check(run_with(BF16).model_copy(update={"device": "cuda"}), machine)
    resolve(BF16).check(run_with(BF16), machine)
