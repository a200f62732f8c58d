"""Mixed precision in float16: an overflow costs an update and not the run, and one that no scale heals is named."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from assay.parallel.loss_scale import DynamicLossScale
from assay.step.program import Step
from assay.training.checkpoints import checkpoint
from assay.training.loop import train_step
from assay.training.step_record import Position
from support.runs import run_with
from support.steps import build_step, traced

FP16 = Spec(name="fp16_mixed")
BARE = resolve(Spec(name="fp16_mixed", fields={"scaler": False})).spec()
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def scale_of(step: Step) -> DynamicLossScale:
    scale = step.program.precision.loss_scale
    assert isinstance(scale, DynamicLossScale)
    return scale


def test_float32_in_backward_or_a_missing_scale_does_not_pass() -> None:
    run = run_with(FP16)
    trace = traced(run)
    assert resolve(FP16).verify(trace, run).verdict
    half = tuple(
        one.model_copy(update={"dtype": "float32"}) if one.phase == "backward" else one for one in trace.operations
    )
    bare = tuple(one for one in trace.operations if "unscale" not in one.name)
    for operations in (half, bare):
        assert not resolve(FP16).verify(trace.model_copy(update={"operations": operations}), run).verdict


def test_weights_in_16_bits_are_no_proof() -> None:
    run = run_with(FP16)
    evidence = resolve(FP16).verify(traced(run_with(Spec(name="fp16_full"))), run)
    assert "but 52 of 52 weights are stored in 16 bits" in evidence.observed
    assert not evidence.verdict


def test_gradients_are_unscaled_before_they_are_measured() -> None:
    plain, scaled = (train_step(build_step(run_with(*specs)), 0) for specs in ((), (FP16,)))
    assert scaled.loss_scale == 2.0**16
    assert scaled.log_gradient_norm == pytest.approx(plain.log_gradient_norm, abs=1e-2)


def test_the_scale_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    run = run_with(FP16)
    step, again = build_step(run), build_step(run)
    scale_of(step).value = 2.0**40
    train_step(step, 0)
    checkpoint.save(tmp_path, step, Position(step=1), "any")
    checkpoint.resume(tmp_path, again)
    assert scale_of(again) == replace(scale_of(step), value=2.0**39)
    assert [train_step(step, index).loss for index in (1, 2)] == [train_step(again, index).loss for index in (1, 2)]


def test_without_a_scaler_nothing_is_scaled_and_a_step_with_one_is_no_proof() -> None:
    run = run_with(BARE)
    step = build_step(run)
    assert not step.program.precision.loss_scale.skips
    assert train_step(step, 0).loss_scale == 1.0
    evidence = resolve(BARE).verify(traced(run), run)
    assert (evidence.verdict, "no loss was scaled" in evidence.observed) == (True, True)
    evidence = resolve(BARE).verify(traced(run_with(FP16)), run)
    assert (evidence.verdict, "multiplied by 65536" in evidence.observed) == (False, True)
    assert not resolve(FP16).verify(traced(run), run_with(FP16)).verdict


def test_without_a_scaler_gradients_that_float16_cannot_hold_are_lost() -> None:
    plain, scaled, bare = (_norm_over_2_to_20_batches(*specs) for specs in ((), (FP16,), (BARE,)))
    assert scaled == pytest.approx(plain, rel=0.01)
    assert bare < 0.5 * plain


def _norm_over_2_to_20_batches(*specs: Spec) -> float:
    """Norm of the gradients of the first step, if its batch were one of 2²⁰ that make up the update."""
    step = build_step(run_with(*specs))
    given = step.program.gradients
    many = replace(step.program, gradients=lambda step, batches, tokens: given(step, batches, tokens * 2**20))
    return math.exp(train_step(replace(step, program=many), 0).log_gradient_norm)


def test_a_pipeline_is_refused() -> None:
    run = run_with(FP16).model_copy(update={"optimizations": (FP16, Spec(name="pipeline_parallel")), "ranks": 2})
    with pytest.raises(Conflict, match="without a loss scale"):
        check(run, CPU)
