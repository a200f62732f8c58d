"""Mixed precision in float16: an overflow costs an update and not the run, and one that no scale heals is named."""

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


def test_a_pipeline_is_refused() -> None:
    run = run_with(FP16).model_copy(update={"optimizations": (FP16, Spec(name="pipeline_parallel")), "ranks": 2})
    with pytest.raises(Conflict, match="without a loss scale"):
        check(run, CPU)
