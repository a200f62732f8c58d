"""Fused AdamW: the same training in one kernel, and a proof that sees where there is none."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.config import Run, Spec
from assay.cost import baseline
from assay.data import Prepared
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, check, resolve
from assay.optimizers.clipping import _not_finite, clipping_inside
from assay.optimizers.recipes import adamw, decay_groups
from assay.step.program import MicroBatch, NamedParameters, OptimizerLike, Step
from assay.training.loop import train_step
from assay.training.stops import Diverged
from support.optimizers import after
from support.runs import run_with, tiny
from support.steps import build_step, loop_of, step_of, traced, weights
from support.swapped import proof_of, traced_with

RUN = run_with(Spec(name="fused_adamw"))
INSIDE = Spec(name="fused_adamw", fields={"clip": "inside"})
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)

GPU = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})


def clipped_at(clip: float, *specs: Spec) -> Run:
    run = run_with(*specs)
    return run.model_copy(update={"training": run.training.model_copy(update={"gradient_clip": clip})})


def test_a_fused_optimizer_that_is_not_is_caught() -> None:
    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = [{**group, "fused": None, "foreach": False} for group in decay_groups(parameters, 0.1)]
        return torch.optim.AdamW(groups, betas=(RUN.training.beta1, RUN.training.beta2), fused=True)

    evidence = proof_of(RUN, traced_with(recipe, RUN))
    assert evidence.observed == "0 fused kernels updated 0 of 52 parameters, 52 updates were not fused"
    assert not evidence.verdict


def test_lists_are_no_fused_kernel() -> None:
    assert not proof_of(RUN, traced_with(adamw(RUN.training, "foreach"), RUN)).verdict


def test_fused_lists_and_the_plain_loop_agree() -> None:
    plain, *others = (after(adamw(RUN.training, kernel)) for kernel in ("plain", "foreach", "fused"))
    for other in others:
        for name, weight in plain.items():
            torch.testing.assert_close(other[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [0.05, 100.0], ids=["clipped", "too small to clip"])
def test_a_kernel_that_clips_updates_as_the_plain_step_does(clip: float) -> None:
    inside, plain = build_step(clipped_at(clip, INSIDE)), build_step(clipped_at(clip))
    for index in range(5):
        here, there = train_step(inside, index), train_step(plain, index)
        assert here.loss == pytest.approx(there.loss, rel=1e-6)
        assert here.log_gradient_norm == pytest.approx(there.log_gradient_norm, abs=1e-5)
    expected = weights(plain)
    for name, weight in weights(inside).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-6)


def test_clipping_inside_is_proven_without_a_pass_and_without_a_read() -> None:
    run = clipped_at(0.05, INSIDE)
    trace = traced(run)
    evidence = proof_of(run, trace)
    assert evidence.verdict, evidence.observed
    assert evidence.observed.endswith("2 of 2 kernels clip, and 0 passes over all gradients do")
    assert trace.synchronizations == {"figures": 1}


def test_a_fused_update_that_clips_apart_is_no_proof_of_one_that_clips_inside() -> None:
    run = clipped_at(0.05, Spec(name="fused_adamw"))
    evidence = proof_of(clipped_at(0.05, INSIDE), traced(run))
    assert evidence.observed.endswith("0 of 2 kernels clip, and 1 passes over all gradients do")
    assert not evidence.verdict


def test_a_norm_that_is_not_finite_leaves_weights_and_moments_and_is_named(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"gradient_clip": 0.05})
    plain = step_of(run, corpus)
    calls: list[int] = []

    def breaking(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        loss = plain.program.gradients(step, micro_batches, tokens)
        calls.append(len(calls))
        if len(calls) > 2:
            grad = dict(step.named_parameters())["blocks.1.mlp.up.weight"].grad
            assert grad is not None
            grad[0, 0] = float("inf")
        return loss

    fused, update = adamw(run.training, "fused"), clipping_inside(0.05)
    step = step_of(run, corpus, gradients=breaking, optimizer=fused, update=update)
    loop = loop_of(run, step, corpus, tmp_path)
    loop.advance(2)
    before = weights(step)
    with pytest.raises(Diverged, match=r"at step 2: the gradient of blocks.1.mlp.up.weight is the first tensor"):
        loop.advance(1)
    assert all(torch.equal(one, before[name]) for name, one in weights(step).items())


def test_clipping_inside_is_refused_where_it_has_nothing_to_do_or_another_updates() -> None:
    with pytest.raises(Conflict, match=r"has nothing to clip, because training\.gradient_clip=0"):
        check(clipped_at(0.0, INSIDE), CPU)
    with pytest.raises(Conflict, match="fp16_full both replace the step's optimizer"):
        check(clipped_at(1.0, INSIDE, Spec(name="fp16_full")), CPU)
    with pytest.raises(Conflict, match="cpu_offload makes an update of its own"):
        check(clipped_at(1.0, INSIDE, Spec(name="cpu_offload")).model_copy(update={"device": "cuda"}), GPU)


def test_the_ledger_writes_each_gradient_once_more() -> None:
    inside, apart = (resolve(one).predict(baseline(RUN), RUN, CPU) for one in (INSIDE, Spec(name="fused_adamw")))
    assert (inside.optimizer.rule.passes, apart.optimizer.rule.passes) == (8.0, 7.0)
    assert inside.optimizer_state_bytes == apart.optimizer_state_bytes


@pytest.mark.parametrize(("norm", "flag"), [(3.0, 0.0), (float("inf"), 1.0), (float("nan"), 1.0)])
def test_the_kernel_is_told_of_a_norm_that_is_not_finite(norm: float, flag: float) -> None:
    assert _not_finite(torch.tensor(norm)).item() == flag
