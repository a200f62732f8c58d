"""Checkpointing: bit-equal losses, one input a block, and dropout drawn the same twice."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from assay.api import configure
from assay.config import Spec
from assay.cost import baseline, kernels
from assay.estimator import estimate
from assay.hardware import Machine
from assay.model import Block
from assay.optimizations import Conflict, check, resolve
from assay.records.trace import CompiledGraph, Graphs
from support.runs import SHAPE, run_with
from support.steps import losses, measured_peak, traced
from support.swapped import proof_of, traced_after

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
FIVE = SHAPE.model_copy(update={"n_layer": 5})
BESIDE = ("sdpa_attention", "gradient_accumulation:micro_batches=2", "bf16_mixed")
VARIANTS: list[Mapping[str, Any]] = [
    {},
    {"dropout": 0.2},
    {"norm_position": "post"},
    {"n_kv_head": 1, "position": "rotary", "norm": "rms", "activation": "swiglu", "qk_norm": True},
    {"n_expert": 4, "n_expert_active": 2},
]


def checkpointing(every: int) -> Spec:
    return Spec(name="activation_checkpointing", fields={"every": every})


@pytest.mark.parametrize("every", [1, 2, 3, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_losses_are_bit_equal(every: int, dropout: float) -> None:
    model = SHAPE.model_copy(update={"dropout": dropout})
    assert losses(run_with(checkpointing(every), model=model)) == losses(run_with(model=model))


def test_a_checkpointed_block_keeps_its_input_only() -> None:
    kept = {every: estimate(run_with(checkpointing(every)), CPU).timeline.saved_bytes for every in (1, 2, 4)}
    whole = estimate(run_with(), CPU).timeline.saved_bytes
    one_input = 4 * 4 * SHAPE.context_length * SHAPE.n_embd
    mask = SHAPE.context_length**2
    per_block = (whole - kept[2]) // 2
    assert kept[1] == whole - 4 * per_block - mask
    assert per_block > 5 * one_input


STACKS = (
    "activation_checkpointing",
    "activation_checkpointing:every=2+gradient_accumulation:micro_batches=2",
    "selective_checkpointing",
    "selective_checkpointing:policy=matmuls",
)


@pytest.mark.parametrize("stack", STACKS)
def test_the_generators_states_are_in_the_peak_as_measured(stack: str) -> None:
    """In a model this small they are a third of it."""
    shape = ("n_layer=8", "n_head=2", "n_embd=8", "context_length=8", "vocab_size=17", "dropout=0.1")
    overrides = [*(f"model.{one}" for one in shape), "training.batch_size=2", "device=cpu"]
    run = configure("demo", overrides, [stack])
    _, measured, _ = measured_peak(run)
    assert estimate(run, CPU).timeline.peak.nbytes == pytest.approx(measured, rel=0.005)


def test_a_gpus_generator_is_the_hosts() -> None:
    run = run_with(checkpointing(1), model=SHAPE.model_copy(update={"dropout": 0.1}))
    on_cpu, on_gpu = (
        resolve(checkpointing(1)).predict(baseline(run, one), run, CPU) for one in (kernels.CPU, kernels.CUDA)
    )
    assert (on_cpu.backward.noise_bytes, on_gpu.backward.noise_bytes) == (torch.get_rng_state().nbytes, 0)
    quiet = run_with(checkpointing(1))
    assert resolve(checkpointing(1)).predict(baseline(quiet), quiet, CPU).backward.noise_bytes == 0


def test_without_dropout_the_down_projection_never_runs_twice() -> None:
    # Per block: qkv, scores, mixture, projection, up run again; down does not.
    evidence = resolve(checkpointing(1)).verify(traced(run_with(checkpointing(1))), run_with(checkpointing(1)))
    assert evidence.observed == "20 matmuls of 4 blocks recomputed in backward"


@pytest.mark.parametrize(("change", "beside"), [*((one, "") for one in VARIANTS), *(({}, one) for one in BESIDE)])
def test_modules_that_must_run_again_are_known_whatever_the_shape(change: Mapping[str, Any], beside: str) -> None:
    model = FIVE.model_copy(update=dict(change))
    run = run_with(checkpointing(2), *([Spec.parse(beside)] if beside else []), model=model)
    evidence = resolve(checkpointing(2)).verify(traced(run), run)
    assert evidence.verdict, evidence.observed


def test_one_block_of_five_is_no_proof() -> None:
    def only_the_first(part: nn.Module) -> None:
        for block in [module for module in part.modules() if isinstance(module, Block)][1:]:
            block.__class__ = Block

    run = run_with(checkpointing(1), model=FIVE)
    evidence = proof_of(run, traced_after(only_the_first, run))
    assert evidence.observed.startswith(
        "5 matmuls of 5 blocks recomputed in backward, 1179648 FLOPs; their forwards had"
    )
    assert not evidence.verdict


@pytest.mark.parametrize(("claimed", "really"), [(1, 5), (5, 1), (2, 1), (1, 2)])
def test_another_number_of_blocks_is_no_proof(claimed: int, really: int) -> None:
    trace = traced(run_with(checkpointing(really), model=FIVE))
    assert not resolve(checkpointing(claimed)).verify(trace, run_with(model=FIVE)).verdict


@pytest.mark.parametrize("policy", ["attention", "matmuls"])
def test_a_part_of_each_block_is_no_proof(policy: str) -> None:
    trace = traced(run_with(Spec(name="selective_checkpointing", fields={"policy": policy})))
    assert not resolve(checkpointing(1)).verify(trace, run_with()).verdict


def test_as_many_matmuls_with_other_work_are_no_proof() -> None:
    trace = traced(run_with(checkpointing(1)))
    lighter = tuple(
        one.model_copy(update={"flops": 0}) if one.phase == "recompute" and one.name == "aten.bmm" else one
        for one in trace.operations
    )
    assert not resolve(checkpointing(1)).verify(trace.model_copy(update={"operations": lighter}), run_with()).verdict


def test_a_schedule_that_would_repeat_a_block_many_times_is_refused() -> None:
    pipeline = Spec.parse("pipeline_parallel:schedule=zero-bubble")
    with pytest.raises(Conflict, match="use another schedule"):
        check(run_with(checkpointing(1), pipeline, ranks=2), CPU)
    check(run_with(checkpointing(1), Spec(name="pipeline_parallel"), ranks=2), CPU)


def test_every_larger_than_the_model_is_refused() -> None:
    with pytest.raises(Conflict, match="more than the model's 4 blocks"):
        resolve(checkpointing(5)).check(run_with(), CPU)


def test_compiled_it_may_keep_what_attention_made_and_no_more() -> None:
    graph = CompiledGraph(backward=True, calls=5, operations=9, contractions=3, kernels=1)
    run = run_with(checkpointing(1), model=FIVE)
    trace = traced(run)

    def proven(again: int) -> bool:
        others = tuple(
            one for one in trace.operations if (one.phase, one.operation_class) != ("recompute", "contraction")
        )
        (some, *_) = [
            one for one in trace.operations if (one.phase, one.operation_class) == ("recompute", "contraction")
        ]
        found = (*others, some.model_copy(update={"count": again}))
        changed = trace.model_copy(update={"graphs": Graphs(compiled=(graph,)), "operations": found})
        return resolve(checkpointing(1)).verify(changed, run).verdict

    assert [again for again in range(40) if proven(again)] == [15, 20, 25, 30]
