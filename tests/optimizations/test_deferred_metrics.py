"""Nobody waits for the device in a step: the proof, what spoils it, what is held until it is read, what is refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, check, resolve
from assay.step.program import MicroBatch, Program, Step
from assay.training.loop import read, take_step, train_step
from assay.training.probes import ActivationNorms
from assay.training.queued_step import take
from support.runs import SHAPE, run_with, specs_of
from support.steps import build_step, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
GPU = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
DEFERRED = Spec(name="deferred_metrics")


def test_the_baseline_waits_for_its_norm_and_for_its_figures() -> None:
    assert traced(run_with()).synchronizations == {"update": 1, "figures": 1}


@pytest.mark.parametrize("other", ["foreach_adamw", "muon", "optimizer_in_backward"])
def test_nobody_waits_beside_other_techniques(other: str) -> None:
    run = run_with(*specs_of([other, "deferred_metrics"]))
    evidence = resolve(DEFERRED).verify(traced(run), run)
    assert evidence.verdict, evidence.observed


def read_in_forward(program: Program) -> Program:
    def reading(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        loss = program.gradients(step, micro_batches, tokens)
        loss.item()
        return loss

    return replace(program, gradients=reading)


def read_in_update(program: Program) -> Program:
    def reading(step: Step) -> Tensor:
        norm = program.update(step)
        norm.item()
        return norm

    return replace(program, update=reading)


@pytest.mark.parametrize("spoil", [read_in_forward, read_in_update], ids=["forward", "update"])
def test_the_proof_fails_where_one_number_is_read(spoil: Callable[[Program], Program]) -> None:
    run = run_with(DEFERRED)
    plain = build_step(run)
    step = replace(plain, program=spoil(plain.program))
    train_step(step, 0)
    with StepTracer(step) as tracer:
        taken = take_step(tracer.watch(), 1)
    (record,) = read(step, [taken])
    evidence = resolve(DEFERRED).verify(tracer.trace(record.loss, record.tokens), run)
    assert "waited for the device 1 times" in evidence.observed
    assert not evidence.verdict


def test_the_proof_fails_where_figures_are_read_within_the_step() -> None:
    evidence = resolve(DEFERRED).verify(traced(run_with()), run_with(DEFERRED))
    assert "1 times in update, 1 times in figures" in evidence.observed
    assert not evidence.verdict


@pytest.mark.parametrize(("every", "unread"), [(4, 3), (1_000_000, 4)], ids=["of more steps", "of all five steps"])
def test_figures_held_until_they_are_read_are_predicted(every: int, unread: int) -> None:
    run = run_with(Spec(name="deferred_metrics", fields={"every": every}))
    step = build_step(run)
    held = sum(take(step, index, ActivationNorms(step)).figures.nbytes for index in range(unread))
    assert estimate(run, CPU).timeline.peak.nbytes - estimate(run_with(), CPU).timeline.peak.nbytes == held


@pytest.mark.parametrize("other", ["fp16_mixed", "fp16_full", "adafactor"])
def test_a_technique_that_reads_before_each_update_is_refused(other: str) -> None:
    with pytest.raises(Conflict, match=f"{other} makes the host read .* leave out deferred_metrics"):
        check(run_with(*specs_of([other, "deferred_metrics"])), CPU)


def test_a_technique_that_a_plain_step_on_a_gpu_has_already_is_refused() -> None:
    run = run_with(DEFERRED).model_copy(update={"device": "cuda"})
    with pytest.raises(Conflict, match=r"every 10 steps here already; give deferred_metrics:every=100, set training"):
        check(run, GPU)
    check(run_with(Spec(name="deferred_metrics", fields={"every": 11})).model_copy(update={"device": "cuda"}), GPU)
    each = run.training.model_copy(update={"read_every": 1})
    check(run.model_copy(update={"training": each}), GPU)


def test_a_mixture_is_refused() -> None:
    mixture = SHAPE.model_copy(update={"n_expert": 4, "n_expert_active": 1})
    with pytest.raises(Conflict, match="how many tokens each expert of a mixture has"):
        check(run_with(DEFERRED, model=mixture), CPU)
